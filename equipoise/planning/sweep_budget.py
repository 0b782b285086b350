"""How a sweep divides its budget, and which budget would do where it is too small.

What a trial still needs is guessed from its progress, or from a number of epochs where it made none: learning slows
down as it comes close to the target, so the guess grows with the square of what is missing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from equipoise.runs.record import Record

MAX_TIMING_SHARE = 0.4  # of the budget that timing steps may take
MIN_TRIAL_STEPS = 20  # fewer steps reach no target
MIN_FINISHED_TRIALS = 2  # before there is a plan
ASSUMED_EPOCHS = 10  # of a trial, as long as none has made progress
MAX_REMAINING_FACTOR = 20.0  # most times the examples seen that a trial is thought to need
SAFETY_FACTOR = 1.5
TRIAL_STARTUP_SECONDS = 15.0  # of the processes of the first trials, on two cores (measured: 10 to 18 s)


@dataclass(frozen=True, kw_only=True)
class SweepBudget:
    """Seconds for timing steps and for trials together, from the first measurement on."""

    seconds: float

    @property
    def timing_seconds(self) -> float:
        """Most seconds for timing steps."""
        return MAX_TIMING_SHARE * self.seconds


def suggest_budget(
    *, timing_seconds: float = 0.0, trials_seconds: float = 0.0, given_timing_seconds: float = 0.0
) -> int:
    """Return a budget, in round seconds, that leaves this much for timing steps and for all trials together.

    The start of the processes of trials is added to their time. A budget whose time for timing steps was too short is
    at least doubled: other programs may have slowed them down, and what a step took then says little.
    """
    trials_seconds += TRIAL_STARTUP_SECONDS if trials_seconds else 0.0
    seconds = SAFETY_FACTOR * max(timing_seconds / MAX_TIMING_SHARE, trials_seconds / (1 - MAX_TIMING_SHARE))
    seconds = max(seconds, 2 * given_timing_seconds / MAX_TIMING_SHARE)
    unit = int(10 ** max(1, math.floor(math.log10(max(seconds, 1.0))) - 1))
    return max(unit, math.ceil(seconds / unit) * unit)


def count_trial_rounds(concurrent_trials: int) -> int:
    """Return how many trials run one after the other before there is a plan."""
    return -(-MIN_FINISHED_TRIALS // concurrent_trials)


def estimate_trial_seconds(cut_off_trials: Sequence[Record]) -> float | None:
    """Estimate how long the trials that come first take to the target; None if no trial has seen any examples.

    They are those with the least time to go, of trials that were stopped because the time of the sweep was up.
    """
    estimates = sorted(
        estimate_examples_to_target(trial) / trial.examples_per_second for trial in cut_off_trials if trial.laps
    )
    return estimates[min(MIN_FINISHED_TRIALS, len(estimates)) - 1] if estimates else None


def estimate_examples_to_target(trial: Record) -> float:
    """Estimate the examples to the target from the progress that an unfinished trial has made."""
    return trial.laps[-1].seen * min(MAX_REMAINING_FACTOR, 1 / max(estimate_progress(trial), 1e-9) ** 2)


def estimate_progress(trial: Record) -> float:
    """Return the share of the way to its target that the best metric of a trial has come.

    A metric that rises is taken to begin at 0, or at its lowest value if that is negative; one that falls, at its first
    value, so that a single evaluation of it is no progress yet.
    """
    metrics = [lap.metric for lap in trial.laps if lap.metric is not None]
    target = trial.target
    if not metrics or target is None:
        return 0.0
    start = max(metrics) if trial.lower_is_better else min(0.0, *metrics, target)
    return (trial.goal.best(metrics) - start) / (target - start) if target != start else 0.0
