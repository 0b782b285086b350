"""Which parts of a model --sharding full gathers by themselves."""

import pytest
from torch import nn
from torchvision.models import resnet18

from equipoise.training.sharding.full.model_units import list_units
from equipoise.workloads.text.gpt import GPT
from tests.support.any_workloads import TinyLanguageModel


def name_units(model):
    names = {module: name for name, module in model.named_modules()}
    return [names[unit] for unit in list_units(model)]


class Nested(nn.Module):
    """Blocks inside a part of the model, as in architectures of transformers."""

    def __init__(self):
        super().__init__()
        self.body = nn.Module()
        self.body.embedding = nn.Embedding(5, 8)
        self.body.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)])
        self.body.attention = nn.ModuleList([nn.TransformerEncoderLayer(8, 2)])
        self.body.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 5)


BLOCKS = [f"layer{stage}.{block}" for stage in range(1, 5) for block in range(2)]


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: GPT(9, 4, 2, 8, 2), ["blocks.0", "blocks.1"]),
        (resnet18, ["conv1", *BLOCKS, "fc"]),
        (Nested, ["body.layers.0.0", "body.layers.1.0", "body.attention.0", "head"]),
        (TinyLanguageModel, ["projection"]),  # its last layer is its embedding
        (lambda: nn.Linear(2, 2), []),
    ],
)
def test_layers_and_blocks_are_units(build, expected):
    assert name_units(build()) == expected
