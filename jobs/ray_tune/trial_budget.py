"""Whether a sweep's budget has time for its trials, and which budget would do where it has not."""

import math
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number, make_printable
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings
from equipoise.planning.sweep_budget import (
    ASSUMED_EPOCHS,
    MIN_FINISHED_TRIALS,
    MIN_TRIAL_STEPS,
    count_trial_rounds,
    estimate_trial_seconds,
    suggest_budget,
)
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record
from equipoise.runs.target import UNNAMED_METRIC
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.trial_records import UNFINISHED_STATUSES, load_finished_trials
from jobs.ray_tune.tuner import SweepTrials


def leave_out_unaffordable_batches(
    sweep_trials: SweepTrials, fastest_workers: FastestWorkers, step_time_fit: StepTimeFit, num_examples: int | None
) -> None:
    """Leave out the global batches of which the time left allows too few steps, unless their trials have ended."""
    step_seconds = dict(fastest_workers.seconds_by_batch)
    if not sweep_trials.real_workers:
        step_seconds = single_worker_step_seconds(step_time_fit, sorted(step_seconds))
    finished = load_finished_trials(sweep_trials.folder, sweep_trials.base)
    affordable = find_affordable_batches(
        step_seconds,
        sweep_trials.deadline - time.time(),
        num_examples,
        sweep_trials.concurrent_trials,
        {record.config.global_batch for record in finished},
    )
    if left_out := describe_unaffordable_batches(step_seconds, affordable):
        print(left_out, flush=True)
    fastest_workers.keep_batches(affordable)
    sweep_trials.workers_by_batch = fastest_workers.workers_by_batch


def single_worker_step_seconds(step_time_fit: StepTimeFit, global_batches: list[int]) -> dict[int, float]:
    """Return the seconds of a step by global batch where one worker computes what all do in training."""
    ones = np.ones(len(global_batches))
    seconds = step_time_fit.fitted_seconds(StepSettings(ones, ones, np.array(global_batches, float)))
    return dict(zip(global_batches, seconds.tolist(), strict=True))


def find_affordable_batches(
    step_seconds: dict[int, float],
    seconds_left: float,
    num_examples: int | None,
    concurrent_trials: int,
    finished_batches: Collection[int] = (),
) -> list[int]:
    """Return the global batches of which a trial can take enough steps, and those of finished trials.

    Refuse a budget that has time for none of them.
    """
    affordable = [
        batch
        for batch, seconds in step_seconds.items()
        if batch in finished_batches or MIN_TRIAL_STEPS * seconds <= seconds_left
    ]
    if affordable:
        return affordable
    batch, seconds = min(step_seconds.items(), key=lambda item: item[1])
    trial_seconds = max(ASSUMED_EPOCHS * (num_examples or 0) / batch, MIN_TRIAL_STEPS) * seconds
    budget = suggest_budget(trials_seconds=count_trial_rounds(concurrent_trials) * trial_seconds)
    raise EquipoiseError(
        "budget-too-small",
        f"a step of {batch} examples takes {format_number(seconds)} s in a trial, and"
        f" {format_number(max(0.0, seconds_left))} s are left for trials: this sweep needs about {budget} s",
        f"give --budget-seconds {budget}, what was measured is kept, or choose a smaller --batch-size",
    )


def describe_unaffordable_batches(step_seconds: dict[int, float], affordable: Collection[int]) -> str:
    """Return a line on the global batches that the budget has no time for; empty if it has time for all."""
    left_out = sorted(set(step_seconds) - set(affordable))
    if not left_out:
        return ""
    seconds = format_number(MIN_TRIAL_STEPS * step_seconds[left_out[0]])
    return (
        f"no trials for lack of time: global batches {', '.join(map(str, left_out))};"
        f" {MIN_TRIAL_STEPS} steps of {left_out[0]} take about {seconds} s"
    )


def require_finished_trials(
    trials: pd.DataFrame, folder: Path, seconds_for_trials: float, concurrent_trials: int, *, time_is_up: bool
) -> None:
    """Refuse to plan with too few trials that ended, or none that reached the target although time was all they lacked.

    The message says how far they came, and which budget would do.
    """
    records = load_trials(folder) if math.isfinite(seconds_for_trials) else []
    stopped = [record for record in records if record.status in UNFINISHED_STATUSES]
    if len(trials) >= MIN_FINISHED_TRIALS and (trials.reached.any() or not stopped):
        return
    few = {0: "no trial ended", 1: "one trial ended and two are needed"}
    ended = few.get(len(trials), f"none of the {len(trials)} trials that ended reached the target")
    if not stopped and not time_is_up:
        raise EquipoiseError("measurements-missing", f"cannot fit a curve: {ended}", "give more batch sizes")
    needed = count_trial_rounds(concurrent_trials) * (estimate_trial_seconds(stopped) or 0.0)
    budget = suggest_budget(trials_seconds=max(2 * seconds_for_trials, needed))
    used_up = sum(record.status == "max_examples" for record in records)
    raise EquipoiseError(
        "budget-too-small",
        f"cannot plan yet: {ended} within {format_number(seconds_for_trials)} s{describe_best_progress(records)}",
        f"give --budget-seconds {budget}; the same command goes on from what was measured"
        + (
            f"; trials came to the end of their examples ({used_up}): a --target that is easier to reach may be missing"
            if used_up
            else ""
        ),
    )


def load_trials(folder: Path) -> list[Record]:
    """Read the records of all trials of a sweep, those that were stopped included."""
    return [read_record(path) for path in sorted(folder.glob("*.json"))]


def describe_trials(trials: pd.DataFrame, folder: Path) -> str:
    """Describe in one line how many trials reached the target and, where none did, what to change."""
    records = load_trials(folder)
    failed = [record for record in records if record.failed]
    line = f"{len(trials)} trials, {int(trials.reached.sum())} of them reached the target"
    if failed:
        line += f", {len(failed)} failed, one because {make_printable(failed[0].reason or 'its process died')}"
    if trials.reached.any():
        return line
    progress = describe_best_progress(records)
    return f"{line}{progress}; give a --target that is easier to reach, more --max-examples or other --lr"


def describe_best_progress(trials: list[Record]) -> str:
    """Return how far the best of some trials came, as the end of a sentence; empty without an evaluation."""
    progress = [(lap.metric, lap.seen) for trial in trials for lap in trial.laps if lap.metric is not None]
    if not progress:
        return ""
    target = trials[0].goal  # all trials of a sweep have one
    best = target.best([metric for metric, _ in progress])
    seen = min(seen for metric, seen in progress if metric == best)
    reached = f"a metric of {best:.3g}" if target.metric_name == UNNAMED_METRIC else f"{best:.3g} {target.metric_name}"
    return f"; the best trial reached {reached} after {seen:,} examples (target {target.describe()})"
