"""Workloads for tests of --sharding, requested as module:attribute like those of users."""

from dataclasses import replace
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from equipoise.config import TrainConfig
from equipoise.workloads import Workload
from equipoise.workloads.digits import digits
from equipoise.workloads.text.gpt import GPT
from tests.support.any_workloads import VOCABULARY, text

GPT_CONTEXT = 12


def build_wide_mlp() -> nn.Module:
    """Build a model of wide layers with dropout between them; no number of rows but one divides by 3."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(256, 96),
        nn.GELU(),
        nn.Linear(96, 64),
        nn.LayerNorm(64),
        nn.GELU(),
        nn.Dropout(0.3),
        nn.Linear(64, 10),
    )


def wide_mlp(trial: TrainConfig) -> Workload:
    """Return digits with a model of wide layers and dropout."""
    return replace(digits(trial), model=build_wide_mlp)


def gpt(trial: TrainConfig) -> Workload:
    """Return sequences of tokens with a GPT of 2 layers of width 16, whose embedding is its output layer too."""
    return text(trial, name="gpt", model=partial(GPT, VOCABULARY, GPT_CONTEXT, 2, 16, 2))


class OneLayer(nn.Module):
    """Model of a single layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 10, 16)

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.layer.weight, self.layer.bias)[:, :, 0, 0]


def one_layer(trial: TrainConfig) -> Workload:
    """Return digits with a model that has no two layers to cut between."""
    return replace(digits(trial), model=OneLayer)
