"""A workload whose gradient is large beside its computing: on slow links the exchange is what binds."""

from dataclasses import replace

from torch import nn

from equipoise.trial import Trial
from equipoise.workloads import Workload
from equipoise.workloads.digits import digits

WIDTH = 768


def wide(trial: Trial) -> Workload:
    """Handwritten digits, learned by two wide layers: 3.2 MB of gradients."""
    return replace(digits(trial), name="wide", model=layers, target=0.95)


def layers() -> nn.Module:
    """Plain ones."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    )
