"""How a training run that confirms or refutes a plan compares with its predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from equipoise.number_bounds import Count, NonNegativeNumber, PositiveNumber
from equipoise.planning.interval import IntervalEstimate

PlanStatus = Literal["confirmed", "not confirmed", "refuted"]
"""whether a training run confirmed a plan, none did yet, or the run missed the target or took too long

A plan that was refuted is planned again with its run counted in, so that what stands in plan.json is one of the others.
"""
Side = Literal["inside", "faster than", "slower than"]


class TrainedSetting(Protocol):
    """Settings of a plan that a training run takes."""

    @property
    def workers(self) -> int:
        """Number of workers."""

    @property
    def batch(self) -> int:
        """Examples per worker and step."""

    @property
    def lr(self) -> float | None:
        """Learning rate; None if the plan sets none."""


@dataclass(frozen=True, kw_only=True)
class PredictionCheck:
    """Measured value beside its prediction."""

    value: NonNegativeNumber
    """measured value"""
    predicted: NonNegativeNumber
    """predicted value"""
    ratio: NonNegativeNumber
    """value over prediction"""


@dataclass(frozen=True, kw_only=True)
class ConfirmationResult:
    """Training run with the settings of a plan, beside the plan's predictions."""

    nodes: Count
    """nodes that the run had"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    lr: PositiveNumber
    """learning rate"""
    seed: int
    """seed of the run"""
    outcome: str
    """how the run ended"""
    seconds: NonNegativeNumber | None
    """seconds to the target; None if the run did not reach it"""
    predicted: IntervalEstimate
    """predicted seconds to the target"""
    inside: bool
    """true if the seconds lie inside the predicted interval"""
    examples: PredictionCheck
    """examples to the target, or those seen by a run that did not reach it"""
    step: PredictionCheck | None
    """seconds per step; None for a run that failed in its first lap"""

    @property
    def global_batch(self) -> int:
        """Examples per optimizer step."""
        return self.workers * self.batch

    @property
    def side(self) -> Side | None:
        """Side of the predicted interval on which the seconds lie; None if the run did not reach the target."""
        if self.seconds is None:
            return None
        return "inside" if self.inside else "faster than" if self.status == "confirmed" else "slower than"

    @property
    def status(self) -> PlanStatus:
        """What the run says of its plan: a run that is faster than predicted confirms it too."""
        return "confirmed" if self.seconds is not None and self.seconds <= self.predicted.high else "refuted"


def find_run_of_plan(plan: TrainedSetting, runs: Sequence[ConfirmationResult]) -> ConfirmationResult | None:
    """Return the last run with the settings of a plan, or None."""
    same = [run for run in runs if (run.workers, run.batch) == (plan.workers, plan.batch) and plan.lr in (None, run.lr)]
    return same[-1] if same else None
