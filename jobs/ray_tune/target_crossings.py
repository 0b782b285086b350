"""Table of the examples to each of several targets: where the trials to the hardest one crossed the easier ones."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import pandas as pd

from equipoise.formatting import pluralize
from equipoise.planning.measurements import TARGETS_TABLE
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record, examples_at_target
from equipoise.runs.target import Target
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, UNFINISHED_STATUSES, count_examples_seen
from jobs.timing.timing_tables import write_csv

TARGET_CROSSING_COLUMNS = ["target", *FINISHED_TRIAL_COLUMNS]


def write_crossings(folder: Path, batches: Collection[int], targets: Sequence[Target]) -> None:
    """Write to targets.csv where the trials in a folder crossed each of several targets; remove it for one target.

    Trials of other global batches belong to an earlier command.
    """
    path = folder.parent / TARGETS_TABLE
    if len(targets) < 2:
        path.unlink(missing_ok=True)
        return
    records = [
        record for record in map(read_record, sorted(folder.glob("*.json"))) if record.config.global_batch in batches
    ]
    write_csv(list_crossings(records, targets), path)
    for note in describe_early_crossings(records, targets[:-1]):
        print(f"note: {note}", flush=True)


def list_crossings(trials: Iterable[Record], targets: Sequence[Target]) -> pd.DataFrame:
    """Return a row for each trial and target, the easiest target first, with the columns of targets.csv.

    A trial that ended before a target counts with the examples that it had seen. One that was cut off counts for the
    targets that it had passed, and for no others: it starts again when there is more time.
    """
    trials = list(trials)
    rows = [
        (target.value, *find_crossing(trial, target))
        for target in targets
        for trial in trials
        if trial.status not in UNFINISHED_STATUSES or examples_at_target(trial.laps, target) is not None
    ]
    table = pd.DataFrame(rows, columns=TARGET_CROSSING_COLUMNS)
    order = {target.value: index for index, target in enumerate(targets)}
    return table.sort_values(
        TARGET_CROSSING_COLUMNS[:4], key=lambda column: column.map(order) if column.name == "target" else column
    )


def find_crossing(trial: Record, target: Target) -> tuple[int, float, int, float, int]:
    """Return a trial's row of `FINISHED_TRIAL_COLUMNS` for a target that may be easier than its own."""
    config, examples = trial.config, examples_at_target(trial.laps, target)
    reached = examples is not None
    return config.global_batch, config.lr, config.seed, examples or count_examples_seen(trial), int(reached)


def describe_early_crossings(trials: Sequence[Record], targets: Sequence[Target]) -> list[str]:
    """Return a sentence on each target that many trials had passed at their first evaluation: its curve is too flat."""
    notes = []
    for target in targets:
        first_metrics = [next((lap.metric for lap in trial.laps if lap.metric is not None), None) for trial in trials]
        evaluated = [metric for metric in first_metrics if metric is not None]
        early = sum(target.is_reached(metric) for metric in evaluated)
        if 2 * early > len(evaluated):
            notes.append(
                f"{early} of {pluralize(len(evaluated), 'trial')} had a metric of {target.describe()} at the first"
                " evaluation, so their examples to this target are too many: give a smaller --eval-every and another"
                " --out, or leave out this --target"
            )
    return notes
