"""Optimizers by name: the class of each, and the options of training that it takes.

A class is named by module:attribute, so that options are read and validated without importing torch. Any optimizer of
torch.optim whose `step` needs no closure can be added as an entry here; `equipoise.optimizers.run_optimizer` builds it
and saves its state.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class OptimizerEntry:
    """Class of an optimizer with the interface of `torch.optim`, and its arguments."""

    constructor: str
    """module:attribute of the class"""
    option_by_argument: Mapping[str, str]
    """name of the option in `TrainConfig` for each keyword argument but the learning rate"""


OPTIMIZERS = {
    "sgd": OptimizerEntry(
        "equipoise.optimizers.fused_optimizers:FusedSGD", {"momentum": "momentum", "weight_decay": "weight_decay"}
    ),
    "adamw": OptimizerEntry(
        "equipoise.optimizers.fused_optimizers:FusedAdamW",
        {"beta2": "beta2", "eps": "epsilon", "weight_decay": "weight_decay"},
    ),
    "lars": OptimizerEntry(
        "equipoise.optimizers.lars:LARS", {"momentum": "momentum", "trust": "trust", "weight_decay": "weight_decay"}
    ),
    "lamb": OptimizerEntry(
        "equipoise.optimizers.lamb:LAMB", {"beta2": "beta2", "eps": "epsilon", "weight_decay": "weight_decay"}
    ),
    "adafactor": OptimizerEntry("torch.optim:Adafactor", {"weight_decay": "weight_decay"}),
}
