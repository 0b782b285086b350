"""Adapters leave a model as it is until they learn, learn alone, and disappear into its weights."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.lora import add_adapters, list_adaptable_layers, merge_adapters
from equipoise.workloads.text.gpt import GPT
from tests.support.errors import raises_code
from tests.support.sequence_models import Gpt

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed: make test-frameworks")
TOKENS = torch.arange(16).view(2, 8)


def build_gpt():
    torch.manual_seed(0)
    return GPT(vocabulary_size=23, context=8, layers=1, width=16, heads=2)


@needs_peft
def test_adapters_learn_alone_and_merge_into_the_weights():
    model = build_gpt()
    names, before = list(model.state_dict()), {name: value.clone() for name, value in model.state_dict().items()}
    expected = model(TOKENS)
    add_adapters(model, rank=2, trained_names=["position_embedding.weight"])
    torch.testing.assert_close(model(TOKENS), expected)
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert [name for name, _ in trained if ".lora_" not in name] == ["position_embedding.weight"]
    assert len(trained) == 1 + 2 * len(list_adaptable_layers(build_gpt()))
    with torch.no_grad():
        for name, parameter in trained:
            if ".lora_" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(0))
    adapted = model(TOKENS)
    merge_adapters(model)
    torch.testing.assert_close(model(TOKENS), adapted, rtol=1e-4, atol=1e-5)
    assert list(model.state_dict()) == names
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {f"{name}.weight" for name in list_adaptable_layers(build_gpt())}


def test_dense_layers_of_their_own_weights_are_adapted():
    assert "head" not in list_adaptable_layers(Gpt())  # tied to the embedding of tokens
    assert list_adaptable_layers(nn.Sequential(nn.Linear(2, 3), nn.Embedding(3, 2), nn.Linear(3, 1))) == ["0", "2"]


@needs_peft
def test_model_without_dense_layers_is_refused():
    with raises_code("model-invalid", "--lora-rank"):
        add_adapters(nn.Conv2d(1, 1, 3), rank=2)


@pytest.mark.skipif(find_spec("peft") is not None, reason="peft is installed here")
def test_missing_peft_is_named():
    with raises_code("package-missing", "pip install peft"):
        add_adapters(build_gpt(), rank=2)


@pytest.mark.parametrize("options", [{}, {"init_from": "runs/x", "freeze_stages": 1}])
def test_rank_without_pretrained_weights_or_with_frozen_stages_is_refused(options):
    with raises_code("option-conflict", "--lora-rank"):
        TrainConfig(workload="text", lora_rank=4, **options)


def test_adapters_of_a_classifier_are_refused():
    with raises_code("option-conflict", "--lora-rank", "digits"):
        Training(TrainConfig(workload="digits", lora_rank=4, init_from="runs/x"))
