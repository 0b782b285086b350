"""Architectures of transformers as language models of characters, with new weights.

Weights in a folder are those of `hugging_face_weights`.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line
from equipoise.workloads.text.model_size import parse_model_size

NO_SPECIAL_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


class HuggingFaceModel(nn.Module):
    """Causal language model of transformers that maps tokens to scores, as our own models do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.model(input_ids=tokens, use_cache=False).logits
        return scores


def hugging_face_factory(name: str, vocabulary_size: int, context: int) -> Callable[[], nn.Module]:
    """Return a function that builds a model of transformers by hf:ARCHITECTURE[:LAYERSxWIDTH] or hf:FOLDER."""
    require_transformers(f"build {name}")
    from transformers import AutoModelForCausalLM

    config = make_configuration(name, vocabulary_size, context)

    def build_model() -> nn.Module:
        try:
            model = HuggingFaceModel(AutoModelForCausalLM.from_config(config))
        except ValueError as error:
            problem = f"cannot build {name}: {first_error_line(error)}"
            raise EquipoiseError("model-invalid", problem, "choose an architecture that predicts next tokens") from None
        require_causal(name, model, context)
        return model

    return build_model


def require_transformers(purpose: str) -> None:
    """Refuse a purpose that needs transformers if the package is not installed."""
    if find_spec("transformers") is None:
        problem = f"cannot {purpose}: transformers is not installed"
        raise EquipoiseError("package-missing", problem, "pip install transformers")


def make_configuration(name: str, vocabulary_size: int, context: int) -> Any:
    """Return the configuration of a model of transformers for our tokens and windows."""
    from transformers import CONFIG_MAPPING, AutoConfig

    architecture = name.removeprefix("hf:")
    if (Path(architecture) / "config.json").is_file():
        config = AutoConfig.from_pretrained(architecture, local_files_only=True)
        for option, value in {"vocab_size": vocabulary_size, "is_decoder": True, **NO_SPECIAL_TOKENS}.items():
            setattr(config, option, value)
        return config
    architecture, colon, size = architecture.partition(":")
    if architecture not in CONFIG_MAPPING:
        raise EquipoiseError(
            "model-unknown",
            f"cannot build {name}: {architecture!r} is neither an architecture of transformers nor a folder with a"
            " config.json",
            "choose one such as hf:gpt2:2x64 or hf:llama:4x128",
        )
    options = {"vocab_size": vocabulary_size, "is_decoder": True, **NO_SPECIAL_TOKENS}
    if colon:
        parsed = parse_model_size(name, size)
        options |= {"num_hidden_layers": parsed.layers, "hidden_size": parsed.width}
        options |= {"num_attention_heads": parsed.heads, "num_key_value_heads": parsed.heads}
        options |= {"intermediate_size": 4 * parsed.width, "max_position_embeddings": context}
    return AutoConfig.for_model(architecture, **options)


def require_causal(name: str, model: nn.Module, context: int) -> None:
    """Refuse a model whose scores depend on later tokens: it would read the answers."""
    tokens = torch.zeros(2, context, dtype=torch.int64)
    tokens[1, -1] = 1
    with torch.no_grad():
        first, second = model.eval()(tokens)[:, :-1]
    model.train()
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-5):
        raise EquipoiseError(
            "model-invalid",
            f"cannot train {name}: its scores depend on later characters",
            "choose an architecture that reads from left to right",
        )
