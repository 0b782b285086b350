"""Pretrained weights in a folder of transformers, for the characters of our vocabulary.

Only safetensors are read, and no code. A tokenizer of sub-words has tokens of single characters too: their rows of the
embedding, and of the scores, become the rows of our characters.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.storage.atomic import read_json
from equipoise.storage.node_cache import fetch_data
from equipoise.storage.object_store import parse_location
from equipoise.texts.vocabulary import Vocabulary
from equipoise.workloads.text.hugging_face import require_transformers

TOKENIZER_FILE = "tokenizer.json"


def is_transformers_folder(location: str) -> bool:
    """Return whether the config.json of a model of transformers lies in a folder, or below a URL."""
    path = parse_location(location) / "config.json"
    if not path.is_file():
        return False
    config = read_json(path)
    return isinstance(config, dict) and "model_type" in config


def load_hugging_face_weights(location: str, vocabulary: Vocabulary) -> tuple[dict[str, Tensor], frozenset[str]]:
    """Return weights by their names in a `HuggingFaceModel`, and the names of those with rows for our characters."""
    require_transformers(f"use --init-from {location}")
    folder = fetch_data(location)
    model = read_pretrained_model(folder)
    tensors = {f"model.{name}": value.detach() for name, value in model.state_dict().items()}
    if (rows := find_character_rows(folder, vocabulary, model.config.vocab_size)) is None:
        return tensors, frozenset()
    token_layers = [layer for layer in (model.get_input_embeddings(), model.get_output_embeddings()) if layer]
    places = {tensor.data_ptr() for layer in token_layers for tensor in layer.parameters()}
    names = frozenset(name for name, tensor in tensors.items() if tensor.data_ptr() in places)
    return {name: take_rows(value, rows) if name in names else value for name, value in tensors.items()}, names


def read_pretrained_model(folder: Path) -> Any:
    """Return the language model in a folder of transformers; refuse one whose weights are incomplete."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # every worker would show one
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        reason = first_error_line(error)
        problem = f"cannot read --init-from {folder}: {reason}"
        raise EquipoiseError("pretrained-unavailable", problem, "give a folder with model.safetensors") from None
    if missing := sorted(report["missing_keys"]):
        problem = f"cannot use --init-from {folder}: it has no weights of a language model for {missing[0]}"
        raise EquipoiseError("pretrained-mismatch", problem)
    return model


def find_character_rows(folder: Path, vocabulary: Vocabulary, vocabulary_size: int) -> list[int | None] | None:
    """Return for each of our tokens the one that stands for its character in the folder's tokenizer, None for none.

    None as a whole if the folder has no tokenizer but as many tokens as we have: they are taken for ours.
    """
    if not (folder / TOKENIZER_FILE).is_file():
        if vocabulary_size == len(vocabulary):
            return None
        raise EquipoiseError(
            "pretrained-mismatch",
            f"cannot use --init-from {folder}: it has {vocabulary_size:,} tokens, the text {len(vocabulary):,}"
            f" different characters, and no {TOKENIZER_FILE} says which token is which character",
        )
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    encodings = [tokenizer.encode(character, add_special_tokens=False).ids for character in vocabulary.characters]
    return [*(ids[0] if len(ids) == 1 else None for ids in encodings), None]


def take_rows(tensor: Tensor, rows: list[int | None]) -> Tensor:
    """Return the rows of a tensor by number, the mean of all where there is none."""
    mean = tensor.mean(0)
    return torch.stack([mean if row is None else tensor[row] for row in rows])
