"""Workloads with large gradients for little computation, whose exchange takes most of the time on slow links.

And one with the reverse, whose exchange takes next to nothing on links as fast as memory.
"""

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


def deep(trial: TrainConfig) -> Workload:
    """Return digits with a model of convolutions: 0.5 MB of gradients, of which a step computes long."""
    return replace(digits(trial), name="deep", model=build_convolutions, target=0.85)


def build_convolutions() -> nn.Module:
    """Return three convolutions and two small layers."""
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def build_layers(width: int) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
