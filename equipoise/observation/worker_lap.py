"""What each worker has measured in a lap, and the lap that follows from all of them."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap

ONE_GRADIENT = (
    "one worker that does not accumulate gradients has a single gradient per step, and the noise scale compares two;"
    " train on two workers, or accumulate the gradients of two micro-batches"
)
NO_DRAW = "no step was measured whose gradients could be compared: the run was too short, or its steps differ"
UNUSABLE_GRADIENTS = "gradients were not finite, not set to zero between steps, or were sparse or sharded"
UNEQUAL_GRADIENTS = "the workers' gradients differed at the end of the backward pass, so something else averages them"
MAX_TOTAL_DIFFERENCE = 1e-3  # between workers, relative, of the squared norm of a mean that all of them hold


class WorkerLap(NamedTuple):
    """Measurements of one worker in a lap, as numbers that workers exchange."""

    data_seconds: float
    compute_seconds: float
    exchange_seconds: float
    local_norms: float
    """sum over the draws of the mean squared norm of a micro-batch's gradient"""
    total_norms: float
    """sum over the draws of the squared norm of the gradient that the optimizer stepped with"""
    draws: float
    norm_seconds: float
    """mean seconds of measuring the norms of a step"""
    end_seconds: float
    """seconds that the end of the lap before took, 0 in the first lap"""
    losses: float
    """sum of the losses of the lap"""
    num_losses: float
    host: float
    """number that stands for the machine"""
    profile_state: float = 0.0
    """1 if the worker has profiled all the steps that it was to, -1 if it cannot, 0 before"""

    @property
    def seconds(self) -> float:
        """Seconds of the lap on this worker."""
        return self.data_seconds + self.compute_seconds + self.exchange_seconds


def build_lap(
    rows: Sequence[WorkerLap], config: TrainConfig, steps: int, last_step: int, lr: float, metric: float | None
) -> tuple[Lap, str | None]:
    """Build the lap that ended at `last_step`, and why it has no noise scale; None if it has one."""
    num_losses, losses = (sum(getattr(row, name) for row in rows) for name in ("num_losses", "losses"))
    norms, problem = combine_norms(rows, config)
    lap = Lap(
        step=last_step,
        steps=steps,
        seen=last_step * config.global_batch,
        examples=steps * config.global_batch,
        workers=config.workers,
        lr=lr,
        loss=losses / num_losses if num_losses and math.isfinite(losses) else None,
        seconds=max(row.seconds for row in rows),
        data_seconds=max(row.data_seconds for row in rows),
        compute_seconds=max(row.compute_seconds for row in rows),
        exchange_seconds=max(row.exchange_seconds for row in rows),
        metric=metric,
        **norms,
    )
    return lap, problem


def combine_norms(rows: Sequence[WorkerLap], config: TrainConfig) -> tuple[dict[str, Any], str | None]:
    """Return the fields of the two norms, means over workers and draws; or none and the reason."""
    if config.num_micro_batches == 1:
        return {}, ONE_GRADIENT
    draws = int(rows[0].draws)
    if not draws or len(rows) < config.workers:
        return {}, NO_DRAW
    local, totals = sum(row.local_norms for row in rows) / len(rows), [row.total_norms for row in rows]
    if not math.isfinite(local + sum(totals)):
        return {}, UNUSABLE_GRADIENTS
    if max(totals) - min(totals) > MAX_TOTAL_DIFFERENCE * max(totals):
        return {}, UNEQUAL_GRADIENTS
    fields = {"local_norm": local / draws, "total_norm": sum(totals) / len(totals) / draws, "draws": draws}
    return fields | {"local_batch": float(config.batch_size), "total_batch": config.global_batch}, None


def count_hosts(rows: Sequence[WorkerLap]) -> int:
    """Return the number of machines that the workers are on."""
    return len({row.host for row in rows})
