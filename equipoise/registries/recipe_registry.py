"""Recipes for large batches by name: how the learning rate follows the batch, and how the batch grows in a run.

`equipoise.training.recipes` runs them; without it, their options are known here.
"""

import math
from itertools import pairwise
from typing import Literal, NamedTuple

from equipoise.errors import EquipoiseError
from equipoise.registries.exchange_registry import CompressionMethod, SyncMethod, is_whole_number
from equipoise.registries.sharding_registry import ShardingMethod

ScalingRule = Literal["none", "linear", "sqrt"]
SCALING_EXPONENTS: dict[ScalingRule, float] = {"none": 0.0, "linear": 1.0, "sqrt": 0.5}
DEFAULT_BASE_BATCH = 32
GROWTH_FORMS = "none, auto, or FACTOR@EXAMPLES such as 2@20000,4@60000, with factors and examples that rise"
MAX_GROWTH = 1 << 20  # times the batch at the start


class GrowthStage(NamedTuple):
    """Part of a run with one batch."""

    factor: int
    """times the batch at the start"""
    examples: int
    """examples seen from which on it applies"""


class BatchGrowth(NamedTuple):
    """How the batch of a step grows in a run: by stages, or as the noise scale does."""

    stages: tuple[GrowthStage, ...] = ()
    follows_noise: bool = False
    """whether the batch doubles after an evaluation where the noise scale is above it"""

    def __bool__(self) -> bool:
        return bool(self.stages) or self.follows_noise


def scale_lr(rule: ScalingRule, lr: float, batch: int, base_batch: int) -> float:
    """Return the learning rate of a batch, given the one that suits `base_batch`."""
    return lr * math.pow(batch / base_batch, SCALING_EXPONENTS[rule])


def require_scaling_rule(rule: ScalingRule, base_batch: int) -> None:
    """Refuse a base batch without a rule that takes it."""
    if rule == "none" and base_batch != DEFAULT_BASE_BATCH:
        raise EquipoiseError(
            "option-conflict", f"--base-batch {base_batch} has no effect without --scaling-rule", "give linear or sqrt"
        )


def parse_growth(text: str) -> BatchGrowth:
    """Parse the value of --grow-batch."""
    if text in ("none", "auto"):
        return BatchGrowth(follows_noise=text == "auto")
    parts = [part.partition("@") for part in text.split(",")]
    if not all(is_whole_number(factor, minimum=2) and is_whole_number(examples) for factor, _, examples in parts):
        raise EquipoiseError(
            "option-choice", f"grow_batch must be {GROWTH_FORMS}, got {text[:40]!a}", "write it such as 2@20000"
        )
    stages = tuple(GrowthStage(int(factor), int(examples)) for factor, _, examples in parts)
    is_rising = all(a.factor < b.factor and a.examples < b.examples for a, b in pairwise(stages))
    if stages[-1].factor > MAX_GROWTH or not is_rising:
        raise EquipoiseError(
            "option-range",
            f"grow_batch must have factors and examples that rise, and factors of at most {MAX_GROWTH:,}, got"
            f" {text[:40]!a}",
            "write it such as 2@20000,4@60000",
        )
    return BatchGrowth(stages)


def require_runnable_growth(
    growth: BatchGrowth, sync: SyncMethod, compression: CompressionMethod, sharding: ShardingMethod, noise_every: int
) -> None:
    """Refuse a batch that grows where the exchange is laid out for one number of micro-batches."""
    if not growth:
        return
    conflicts = {
        f"--sync {sync.kind}": sync.kind != "step",
        f"--compression {compression.kind}": compression.kind != "none",
        f"--sharding {sharding.kind}": sharding.kind not in ("none", "optimizer"),
    }
    for option in (option for option, is_used in conflicts.items() if is_used):
        raise EquipoiseError(
            "option-conflict",
            f"cannot use --grow-batch with {option}: its exchange is laid out for one number of micro-batches",
            "omit one of the two, or go on with more --grad-accumulation in a run of its own, --init-from the first",
        )
    if growth.follows_noise and not noise_every:
        raise EquipoiseError(
            "option-conflict",
            "cannot use --grow-batch auto with --noise-scale-every 0: it follows the noise scale that is measured",
            "omit --noise-scale-every",
        )


def require_synchronous_average(average_weights: float, sync: SyncMethod) -> None:
    """Refuse an average over the steps of weights that are not the same on all workers."""
    if average_weights and (sync.is_local or sync.kind == "async"):
        raise EquipoiseError(
            "option-conflict",
            f"cannot use --average-weights with --sync {sync.kind}: after a step each worker has weights of its own",
            "omit --average-weights, or choose --sync step or server",
        )
