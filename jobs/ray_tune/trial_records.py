"""Records of the trials of a sweep: file names, validation, and rows for the search."""

from dataclasses import replace
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record

FINISHED_TRIAL_COLUMNS = ["global_batch", "lr", "seed", "examples", "reached"]
UNFINISHED_STATUSES = ("running", "cut_off")
"""statuses of trials that start again; one that was stopped in the middle of a step may write its record once more"""


def trial_file_stem(trial: TrainConfig) -> str:
    """Return the file name of a trial's record, without its suffix."""
    return f"batch-{trial.global_batch}-lr-{trial.lr:g}-seed-{trial.seed}"


def strip_trial_setting(trial: TrainConfig) -> TrainConfig:
    """Return the options that all trials of a sweep share, with fixed values of those in which they differ."""
    return replace(trial, workers=1, batch_size=1, grad_accumulation=1, lr=1.0, seed=0)


def load_finished_trials(folder: Path, base: TrainConfig) -> list[Record]:
    """Read the records of all trials that ended; refuse a file that is damaged or of another sweep."""
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = read_record(path)
        except EquipoiseError as error:
            raise EquipoiseError(
                "run-damaged", f"{path} is damaged: remove it, and the same command repeats its trial"
            ) from error
        trial = record.config
        same_sweep = strip_trial_setting(trial) == strip_trial_setting(base)
        if not same_sweep or path.stem != trial_file_stem(trial):
            raise EquipoiseError(
                "run-mismatch",
                f"{path} holds another trial than its name says: remove it, and the same command repeats it",
            )
        if record.status not in UNFINISHED_STATUSES:
            records.append(record)
    return records


def record_to_row(record: Record) -> tuple[int, float, int, float, int]:
    """Return a record's row of `FINISHED_TRIAL_COLUMNS`, with the examples seen where the target was not reached."""
    trial = record.config
    examples = record.examples_to_target or count_examples_seen(record)
    return trial.global_batch, trial.lr, trial.seed, examples, int(record.reached)


def count_examples_seen(record: Record) -> int:
    """Return the examples that a trial has seen; at least a batch, since a first lap that failed has no record."""
    return record.laps[-1].seen if record.laps else record.config.global_batch
