"""How a training run that confirms or refutes a plan compares with its predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from equipoise.number_bounds import Count, LearningRate, NonNegativeNumber
from equipoise.planning.interval import IntervalEstimate

PlanStatus = Literal["confirmed", "not confirmed"]
"""whether a training run confirmed a plan, or none did yet

A plan that a run refutes is planned again with that run counted in, so that the one in plan.json is not confirmed yet.
"""
RunVerdict = Literal["confirmed", "refuted"]
"""what a training run says of its plan: refuted, if it missed the target or took too long"""
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
    def global_batch(self) -> int:
        """Examples per step of all workers."""

    @property
    def lr(self) -> float | None:
        """Learning rate; None if the plan sets none."""

    @property
    def exchange(self) -> str:
        """Way of exchange; empty for exact sums of the gradient in every step."""


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
    lr: LearningRate
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
    exchange: str = ""
    """way of exchange; empty for exact sums of the gradient in every step"""

    def __post_init__(self) -> None:
        if self.nodes > self.workers:
            raise ValueError(f"{self.workers} workers cannot run on {self.nodes} nodes")
        if self.inside != (self.seconds is not None and self.predicted.includes(self.seconds)):
            raise ValueError("`inside` contradicts the seconds and the predicted interval")

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
    def status(self) -> RunVerdict:
        """What the run says of its plan: a run that is faster than predicted confirms it too."""
        return "confirmed" if self.seconds is not None and self.seconds <= self.predicted.high else "refuted"


def find_run_of_plan(plan: TrainedSetting, runs: Sequence[ConfirmationResult]) -> ConfirmationResult | None:
    """Return the last run with the settings of a plan, or None."""
    setting = (plan.workers, plan.batch, plan.global_batch, plan.exchange)
    same = [
        run
        for run in runs
        if (run.workers, run.batch, run.global_batch, run.exchange) == setting and plan.lr in (None, run.lr)
    ]
    return same[-1] if same else None


def find_plan_status(plan: TrainedSetting | None, runs: Sequence[ConfirmationResult]) -> PlanStatus:
    """Return what the last run with the settings of a plan says of it."""
    run = find_run_of_plan(plan, runs) if plan else None
    return "confirmed" if run is not None and run.status == "confirmed" else "not confirmed"
