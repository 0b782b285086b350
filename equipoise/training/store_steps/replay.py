"""Replay of an asynchronous run in one process, from its log of arrivals."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.parameter_store.arrivals import LapArrivals
from equipoise.training.loop import Training
from equipoise.training.store_steps.scheduled_steps import ScheduledSteps
from equipoise.training.torch_state import collect_weights


class LoggedArrivals:
    """Arrivals of a run that has ended."""

    def __init__(self, laps: Sequence[LapArrivals]) -> None:
        self.lap_by_end = {lap.step: lap for lap in laps}

    def schedule_lap(self, step: int, num_steps: int) -> LapArrivals:
        """Return the arrivals of the steps after `step` others; refuse a lap that is not in the log."""
        lap = self.lap_by_end.get(step + num_steps)
        if lap is None or lap.steps != num_steps:
            raise EquipoiseError(
                "run-damaged",
                f"cannot replay the run: its log of arrivals has no lap of steps {step + 1:,} to {step + num_steps:,}",
                "restore the log, or train the run again",
            )
        return lap


def replay_run(config: TrainConfig, laps: Sequence[LapArrivals]) -> dict[str, Tensor]:
    """Train again what these laps of a run say, and return the weights that the run keeps."""
    training = Training(config)
    steps = training.steps
    assert isinstance(steps, ScheduledSteps)  # noqa: S101 - of asynchronous workers in one process
    steps.schedule = LoggedArrivals(laps)
    for _ in training.laps():
        if training.step == laps[-1].step:
            break  # here the run has ended too
    training.load_kept_weights()
    return collect_weights(training.model)


def largest_difference(weights: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    """Return the largest difference of two states over their tensors, relative to the norm of the tensor."""
    if weights.keys() != others.keys():
        return float("inf")
    return max((relative_difference(weights[name], others[name]) for name in others), default=0.0)


def relative_difference(tensor: Tensor, other: Tensor) -> float:
    """Return the norm of the difference of two tensors, relative to that of the second."""
    if tensor.shape != other.shape:
        return float("inf")
    if torch.equal(tensor, other):
        return 0.0
    difference, norm = float((tensor.double() - other.double()).norm()), float(other.double().norm())
    return difference / norm if norm else float("inf")
