"""A workload whose gradient is large beside its computing: on slow links the exchange is what binds."""

from dataclasses import replace

from torch import nn

from equipoise.config import TrainConfig
from equipoise.workloads import Workload
from equipoise.workloads.digits import digits


def wide(trial: TrainConfig) -> Workload:
    """Handwritten digits, learned by two wide layers: 3.2 MB of gradients."""
    return replace(digits(trial), name="wide", model=lambda: layers(768), target=0.95)


def wider(trial: TrainConfig) -> Workload:
    """The same with 11 MB: computing and exchange both weigh more beside what every step costs."""
    return replace(digits(trial), name="wider", model=lambda: layers(1536), target=0.95)


def layers(width: int) -> nn.Module:
    """Plain ones."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )
