import pytest
import torch

from equipoise.workloads.text.models import language_model_factory
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("name", "layers", "width", "heads"),
    [
        ("gpt", 2, 64, 4),
        ("gpt:2x64", 2, 64, 4),
        ("gpt:4x128", 4, 128, 4),
        ("gpt:1x512", 1, 512, 8),
        ("gpt:1x4", 1, 4, 4),
    ],
)
def test_name_gives_layers_width_and_heads(name, layers, width, heads):
    model = language_model_factory(name, vocabulary_size=10, context=8)()
    assert len(model.blocks) == layers
    assert {block.attention.heads for block in model.blocks} == {heads}
    assert model.token_embedding.weight.shape == (10, width)
    assert model.position_embedding.weight.shape == (8, width)
    assert model(torch.zeros(2, 8, dtype=torch.int64)).shape == (2, 8, 10)


@pytest.mark.parametrize("name", ["lenet", "gtp", "GPT", "", "gptx4"])
def test_unknown_names_are_refused_with_the_choices(name):
    with raises_code("model-unknown", repr(name), "gpt:4x128"):
        language_model_factory(name, 10, 8)


@pytest.mark.parametrize("name", ["gpt:", "gpt:4", "gpt:x", "gpt:0x64", "gpt:2x66", "gpt:-1x64", "gpt:2x516"])
def test_impossible_sizes_are_refused(name):
    with raises_code("model-invalid", name):
        language_model_factory(name, 10, 8)


def test_every_call_draws_new_weights():
    factory = language_model_factory("gpt", 10, 8)
    torch.manual_seed(0)
    first, second = factory(), factory()
    torch.manual_seed(0)
    again = factory()
    assert torch.equal(first.token_embedding.weight, again.token_embedding.weight)
    assert not torch.equal(first.token_embedding.weight, second.token_embedding.weight)
