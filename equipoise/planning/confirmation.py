"""How a training run that confirms or refutes a plan compares with its predictions."""

from dataclasses import dataclass
from typing import Literal

from equipoise.number_bounds import Count, NonNegativeNumber, PositiveNumber
from equipoise.planning.interval import IntervalEstimate

PlanStatus = Literal["confirmed", "not confirmed", "refuted"]
"""whether a training run confirmed a plan, none was made yet, or the run missed the target or took too long"""


@dataclass(frozen=True, kw_only=True)
class PredictionCheck:
    """Measured value beside its prediction."""

    value: NonNegativeNumber
    predicted: NonNegativeNumber
    ratio: NonNegativeNumber
    """value over prediction"""


@dataclass(frozen=True, kw_only=True)
class ConfirmationResult:
    """Training run with the settings of a plan, beside the plan's predictions."""

    nodes: Count
    workers: Count
    batch: Count
    lr: PositiveNumber
    seed: int
    outcome: str
    """how the run ended"""
    seconds: NonNegativeNumber | None
    """seconds to the target; None if the run did not reach it"""
    predicted: IntervalEstimate
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
    def status(self) -> PlanStatus:
        """What the run says of its plan: a run that is faster than predicted confirms it too."""
        return "confirmed" if self.seconds is not None and self.seconds <= self.predicted.high else "refuted"
