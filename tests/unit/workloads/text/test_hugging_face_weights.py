"""Pretrained weights of transformers fit our characters: by their tokenizer, or where they have as many tokens."""

import json
from importlib.util import find_spec

import pytest
import torch

from equipoise.texts.vocabulary import Vocabulary
from equipoise.workloads.text.hugging_face import hugging_face_factory
from equipoise.workloads.text.hugging_face_weights import (
    find_character_rows,
    is_transformers_folder,
    load_hugging_face_weights,
    take_rows,
)
from tests.support.errors import raises_code

needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="transformers is not installed: make test-frameworks"
)
VOCABULARY = Vocabulary(" abz")
TOKENS = {"ab": 0, "b": 1, "a": 2, " ": 3, "c": 4, "ac": 5}


@pytest.fixture
def pretrained_folder(tmp_path):
    """GPT-2 over six tokens, saved by transformers."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    options = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(n_layer=1, n_embd=16, n_head=2, n_positions=8, vocab_size=len(TOKENS), **options)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    return tmp_path


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(TOKENS, [("a", "b"), ("a", "c")])).save(str(folder / "tokenizer.json"))


@needs_transformers
def test_characters_take_the_rows_of_their_tokens(pretrained_folder):
    from transformers import GPT2LMHeadModel

    write_tokenizer(pretrained_folder)
    tensors, new_names = load_hugging_face_weights(str(pretrained_folder), VOCABULARY)
    theirs = GPT2LMHeadModel.from_pretrained(pretrained_folder).state_dict()
    embedding = theirs["transformer.wte.weight"]
    mean = embedding.mean(0)
    expected = torch.stack([embedding[3], embedding[2], embedding[1], mean, mean])
    assert torch.equal(tensors["model.transformer.wte.weight"], expected)
    assert new_names == {"model.transformer.wte.weight", "model.lm_head.weight"}
    for name in theirs.keys() - {name.removeprefix("model.") for name in new_names}:
        assert torch.equal(tensors[f"model.{name}"], theirs[name])
    model = hugging_face_factory(f"hf:{pretrained_folder}", len(VOCABULARY), 8)()
    model.load_state_dict(tensors)


@needs_transformers
def test_as_many_tokens_without_a_tokenizer_are_ours(pretrained_folder):
    _, new_names = load_hugging_face_weights(str(pretrained_folder), Vocabulary("abcde"))
    assert not new_names


@needs_transformers
def test_weights_that_are_no_safetensors_are_refused(pretrained_folder):
    weights = pretrained_folder / "model.safetensors"
    torch.save({}, weights.with_name("pytorch_model.bin"))
    weights.unlink()
    with raises_code("pretrained-unavailable", "model.safetensors"):
        load_hugging_face_weights(str(pretrained_folder), Vocabulary("abcde"))


@needs_transformers
def test_weights_of_another_kind_of_model_are_refused(pretrained_folder):
    config = json.loads((pretrained_folder / "config.json").read_text())
    (pretrained_folder / "config.json").write_text(json.dumps(config | {"n_layer": 2}))
    with raises_code("pretrained-mismatch", "transformer.h.1"):
        load_hugging_face_weights(str(pretrained_folder), Vocabulary("abcde"))


def test_another_number_of_tokens_without_a_tokenizer_is_refused(tmp_path):
    with raises_code("pretrained-mismatch", "50,257", "tokenizer.json"):
        find_character_rows(tmp_path, VOCABULARY, 50_257)


def test_rows_that_no_token_has_are_the_mean():
    rows = take_rows(torch.tensor([[1.0], [2.0], [6.0]]), [2, None, 0])
    assert rows.tolist() == [[6.0], [3.0], [1.0]]


@pytest.mark.parametrize(
    ("content", "expected"), [('{"model_type": "gpt2"}', True), ('{"workload": "text"}', False), ("[]", False)]
)
def test_folder_of_transformers_is_known_by_its_configuration(tmp_path, content, expected):
    assert not is_transformers_folder(str(tmp_path))
    (tmp_path / "config.json").write_text(content)
    assert is_transformers_folder(str(tmp_path)) is expected
