"""Records of the trials of a sweep: file names, validation, and rows for the search."""

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.exchanges.training_options import name_exchange
from equipoise.registries.sweep_recipes import RECIPE_FORMS
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record
from equipoise.storage.atomic import write_json

FINISHED_TRIAL_COLUMNS = ["global_batch", "lr", "seed", "examples", "reached"]
UNFINISHED_STATUSES = ("running", "cut_off")
"""statuses of trials that start again"""


def trial_file_stem(trial: TrainConfig) -> str:
    """Return the file name of a trial's record, without its suffix; with the way of exchange unless sums are exact."""
    stem = f"batch-{trial.global_batch}-lr-{trial.lr:g}-seed-{trial.seed}"
    if not (name := name_exchange(trial)):
        return stem
    words = name.replace(":", "-").replace("/", "-")
    momentum = f"-momentum-{trial.momentum:g}" if trial.sync_method.kind == "async" else ""
    return f"{stem}-workers-{trial.workers}-{words}{momentum}"


def strip_trial_setting(trial: TrainConfig) -> TrainConfig:
    """Return the options that all trials of a sweep share, with fixed values of those in which they differ."""
    return replace(trial, workers=1, batch_size=1, grad_accumulation=1, lr=1.0, seed=0)


def strip_exchange(trial: TrainConfig, base: TrainConfig) -> TrainConfig:
    """Return the options of a trial as those with exact sums have them, which are those of `base`.

    Trials with servers have no other algorithm of sums, and asynchronous ones may have a momentum of their own.
    """
    sync = trial.sync_method
    return replace(
        trial,
        sync="step",
        compression="none",
        servers=0,
        all_reduce=base.all_reduce if sync.has_store else trial.all_reduce,
        momentum=base.momentum if sync.kind == "async" else trial.momentum,
    )


def strip_recipe(trial: TrainConfig) -> TrainConfig:
    """Return the options of a trial with fixed values of those that recipes set."""
    forms = RECIPE_FORMS.values()
    names = {name for form in forms for name in (*form.options, form.number) if name}
    defaults: dict[str, Any] = {field.name: field.default for field in fields(TrainConfig) if field.name in names}
    return replace(trial, **defaults)


def load_finished_trials(folder: Path, base: TrainConfig, *, with_exchanges: bool = False) -> list[Record]:
    """Read the records of all trials that ended; refuse a file that is damaged or of another sweep.

    Trials with other ways of exchange than exact sums lie in a folder of their own.
    """
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = read_record(path)
        except EquipoiseError as error:
            raise EquipoiseError(
                "run-damaged", f"{path} is damaged: remove it, and the same command repeats its trial"
            ) from error
        trial = record.config
        shared = strip_trial_setting(strip_exchange(trial, base) if with_exchanges else trial)
        same_sweep = shared == strip_trial_setting(base) and bool(name_exchange(trial)) == with_exchanges
        if not same_sweep or path.stem != trial_file_stem(trial):
            raise EquipoiseError(
                "run-mismatch",
                f"{path} holds another trial than its name says: remove it, and the same command repeats it",
            )
        if record.status not in UNFINISHED_STATUSES:
            records.append(record)
    return records


def mark_cut_off(record: Record) -> Record:
    """Return the record of a trial that ran when the time of its sweep was up."""
    return replace(record, status="cut_off", reason="the time of the sweep was up")


def read_stopped_trials(paths: Iterable[Path]) -> list[Record]:
    """Return those of the trials cut off that have come to their end; the others are marked once more.

    One that was stopped in the middle of a step may have written after the mark that it runs.
    """
    records = {path: read_record(path) for path in paths}
    for path, record in records.items():
        if record.status == "running":
            write_json(path, mark_cut_off(record).to_json())
    return [record for record in records.values() if record.status not in UNFINISHED_STATUSES]


def record_to_row(record: Record) -> tuple[int, float, int, float, int]:
    """Return a record's row of `FINISHED_TRIAL_COLUMNS`, with the examples seen where the target was not reached."""
    trial = record.config
    examples = record.examples_to_target or count_examples_seen(record)
    return trial.global_batch, trial.lr, trial.seed, examples, int(record.reached)


def count_examples_seen(record: Record) -> int:
    """Return the examples that a trial has seen; at least a batch, since a first lap that failed has no record."""
    return record.laps[-1].seen if record.laps else record.config.global_batch
