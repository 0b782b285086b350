"""End of a run: when its laps end it, and which of them had the best metric."""

from collections.abc import Sequence
from typing import NamedTuple

from equipoise.formatting import pluralize
from equipoise.runs.record import Lap, Record, RunStatus, examples_at_target
from equipoise.runs.target import Target


class RunEnd(NamedTuple):
    """Status and reason of a run by its laps; both are None while it goes on."""

    status: RunStatus | None
    reason: str | None = None


def find_run_end(laps: Sequence[Lap], target: Target, max_examples: int, patience: int | None) -> RunEnd:
    """Return whether the laps end a run: by its target, its examples, or evaluations without a better metric."""
    if examples_at_target(laps, target) is not None:
        return RunEnd("reached_target")
    if laps and laps[-1].seen >= max_examples:
        return RunEnd("max_examples")
    if patience and count_evaluations_since_best(laps, target) >= patience:
        return RunEnd("stopped_early", f"the metric has not improved in {pluralize(patience, 'evaluation')}")
    return RunEnd(None)


def find_best_lap(laps: Sequence[Lap], target: Target) -> Lap | None:
    """Return the lap that ended with the best metric, the first of equal ones; None before the first evaluation."""
    best: tuple[float, Lap] | None = None
    for lap in laps:
        if lap.metric is not None and (best is None or target.is_better(lap.metric, best[0])):
            best = lap.metric, lap
    return best and best[1]


def count_evaluations_since_best(laps: Sequence[Lap], target: Target) -> int:
    """Return the number of evaluations after that of the best lap."""
    best = find_best_lap(laps, target)
    return 0 if best is None else sum(lap.metric is not None and lap.step > best.step for lap in laps)


def find_kept_lap(record: Record) -> Lap | None:
    """Return the lap whose weights a run has kept as its model, by its option --keep; None without any lap."""
    return (
        find_best_lap(record.laps, record.goal) if record.config.keep == "best" else next(reversed(record.laps), None)
    )
