"""Workloads for tests of --sharding, requested as module:attribute like those of users."""

from dataclasses import replace

import torch
from torch import Tensor, nn

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


def build_gpt() -> nn.Module:
    """Build a GPT of 2 layers of width 16, without biases of keys, whose gradients are rounding errors alone."""
    model = GPT(VOCABULARY, GPT_CONTEXT, 2, 16, 2)
    for block in model.blocks:
        block.attention.query_key_value.bias = None
    return model


def gpt(trial: TrainConfig) -> Workload:
    """Return sequences of tokens with a GPT, whose embedding is its output layer too."""
    return text(trial, name="gpt", model=build_gpt)


class ScaledLinear(nn.Module):
    """Linear model whose scores are multiplied by a number that is learned too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(256, 10)
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layer(images.flatten(1)) * self.temperature
        return scores


def with_scalar(trial: TrainConfig) -> Workload:
    """Return digits with a model of which one weight is a single number."""
    return replace(digits(trial), model=ScaledLinear)


class AdaptedLinear(nn.Module):
    """Frozen layer with a low-rank addition that learns, built as peft builds its own."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down = nn.ModuleDict({"default": nn.Linear(inputs, 2, bias=False)})
        self.up = nn.ModuleDict({"default": nn.Linear(2, outputs, bias=False)})

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.base_layer(x) + self.up["default"](self.down["default"](x))
        return y


def build_adapted_mlp() -> nn.Module:
    """Build a model whose layers are frozen but for their adapters."""
    return nn.Sequential(nn.Flatten(), AdaptedLinear(256, 32), nn.GELU(), AdaptedLinear(32, 10))


def with_adapters(trial: TrainConfig) -> Workload:
    """Return digits with a model that trains low-rank adapters alone."""
    return replace(digits(trial), model=build_adapted_mlp)
