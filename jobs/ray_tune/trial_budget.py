"""Whether a sweep's budget has time for its trials, and which budget would do where it has not."""

from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings
from equipoise.planning.sweep_budget import (
    ASSUMED_EPOCHS,
    MIN_TRIAL_STEPS,
    MIN_TRIALS,
    estimate_trial_seconds,
    suggest_budget,
)
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record


def trial_step_seconds(step_time_fit: StepTimeFit, global_batches: list[int]) -> dict[int, float]:
    """Return the seconds of a step of a trial by global batch: one worker computes what all do in training."""
    ones = np.ones(len(global_batches))
    seconds = step_time_fit.fitted_seconds(StepSettings(ones, ones, np.array(global_batches, float)))
    return dict(zip(global_batches, seconds.tolist(), strict=True))


def find_affordable_batches(step_seconds: dict[int, float], trial_seconds: float, num_examples: int) -> list[int]:
    """Return the global batches of which a trial can take enough steps; refuse a budget that has time for none."""
    affordable = [batch for batch, seconds in step_seconds.items() if MIN_TRIAL_STEPS * seconds <= trial_seconds]
    if affordable:
        return affordable
    batch, seconds = min(step_seconds.items(), key=lambda item: item[1])
    needed = max(ASSUMED_EPOCHS * num_examples / batch, MIN_TRIAL_STEPS) * seconds
    budget = suggest_budget(trial_seconds=needed)
    raise EquipoiseError(
        "budget-too-small",
        f"a step of {batch} examples takes {format_number(seconds)} s in a trial, which one worker runs, and"
        f" {format_number(trial_seconds)} s are left for trials: this sweep needs about {budget} s",
        f"give --budget-seconds {budget}, what was measured is kept, or choose a smaller --batch-size",
    )


def require_finished_trials(trials: pd.DataFrame, folder: Path, trial_seconds: float) -> None:
    """Refuse to plan with too few trials that ended, or none that reached the target although time was all they lacked.

    The message says how far they came, and which budget would do.
    """
    stopped = load_stopped_trials(folder)
    if len(trials) >= MIN_TRIALS and (trials.reached.any() or not stopped):
        return
    few = {0: "no trial ended", 1: "one trial ended and two are needed"}
    ended = few.get(len(trials), f"none of the {len(trials)} trials that ended reached the target")
    if not stopped:
        raise EquipoiseError("measurements-missing", f"cannot fit a curve: {ended}", "give more batch sizes or seeds")
    budget = suggest_budget(trial_seconds=max(2 * trial_seconds, estimate_trial_seconds(stopped) or 0.0))
    raise EquipoiseError(
        "budget-too-small",
        f"cannot plan yet: {ended} within {format_number(trial_seconds)} s{describe_best_progress(stopped)}",
        f"give --budget-seconds {budget}; the same command goes on from what was measured",
    )


def load_stopped_trials(folder: Path) -> list[Record]:
    """Read the records of the trials that were stopped because the time was up."""
    return [record for path in sorted(folder.glob("*.json")) if (record := read_record(path)).status == "cut_off"]


def describe_best_progress(stopped: list[Record]) -> str:
    """Return how far the best of the stopped trials came, as the end of a sentence; empty without an evaluation."""
    progress = [(lap.metric, lap.seen, trial) for trial in stopped for lap in trial.laps if lap.metric is not None]
    if not progress:
        return ""
    metric, seen, trial = max(progress, key=lambda item: item[:2])
    return f"; the best of those stopped came to {metric:.3g} of {trial.target:.3g} in {seen:,} examples"
