"""Workloads with large gradients for little computation: on slow links the exchange takes most of the time."""

from dataclasses import replace

from torch import nn

from equipoise.config import TrainConfig
from equipoise.workloads import Workload
from equipoise.workloads.digits import digits


def wide(trial: TrainConfig) -> Workload:
    """Return digits with a model of two wide layers: 3.2 MB of gradients."""
    return replace(digits(trial), name="wide", model=lambda: build_layers(768), target=0.95)


def wider(trial: TrainConfig) -> Workload:
    """Return digits with 11 MB of gradients: computation and exchange outweigh the fixed cost of a step."""
    return replace(digits(trial), name="wider", model=lambda: build_layers(1536), target=0.95)


def build_layers(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
