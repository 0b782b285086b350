"""Table of all records below a folder, one row each, decoded without the values that the table does not show.

Damaged files are listed beside the table and do not affect the other rows.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import pandas as pd

from equipoise.command_template import find_program_name
from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.runs.record import RECORD_SCHEMA, RecordSchema
from equipoise.storage.json_decoding import describe_mismatch

NON_RECORD_FOLDERS = ("tune", "checkpoints", "system")
"""folders inside a sweep or a run that hold no records"""
RECORD_COLUMNS = {
    "path": "str",
    "workload": "str",
    "model": "str",
    "optimizer": "str",
    "workers": "int64",
    "batch_size": "int64",
    "grad_accumulation": "int64",
    "global_batch": "int64",
    "lr": "float64",
    "seed": "int64",
    "status": "str",
    "target": "float64",
    "lower_is_better": "bool",
    "examples_to_target": "float64",
    "examples": "int64",
    "seconds": "float64",
    "test": "float64",
}
"""columns in order, with their types

`target` is NaN without one; `examples` counts all examples seen, `seconds` the time spent training.
"""
READ_CHUNK_BYTES = 1 << 16  # bytes per read call
MAX_INT64 = (1 << 63) - 1
Int64 = Annotated[int, msgspec.Meta(ge=-MAX_INT64 - 1, le=MAX_INT64)]


class ListedConfig(msgspec.Struct, frozen=True):
    """Options of a run that the table shows; the default where the release that wrote a record did not have one."""

    workload: str | None = None
    command: str | None = None
    model: str | None = TrainConfig.model
    optimizer: str | None = TrainConfig.optimizer
    workers: Int64 = TrainConfig.workers
    batch_size: Int64 = TrainConfig.batch_size
    grad_accumulation: Int64 = TrainConfig.grad_accumulation
    lr: float | None = TrainConfig.lr
    seed: Int64 = TrainConfig.seed

    def __post_init__(self) -> None:
        if (self.workload is None) == (self.command is None):
            raise ValueError("it names neither a workload nor a command, or both")

    @property
    def name(self) -> str:
        """Name of what was trained: the workload, or the program that --command ran."""
        return self.workload or find_program_name(self.command or "")

    @property
    def global_batch(self) -> int:
        """Number of examples that one optimizer step averages over."""
        return self.workers * self.batch_size * self.grad_accumulation


class ListedLap(msgspec.Struct, frozen=True):
    """Position and duration of a lap."""

    seen: Int64
    seconds: float


class ListedRecord(msgspec.Struct, frozen=True):
    """Record of a run with only what the table shows: a `Record` takes twice as long to decode."""

    config: ListedConfig
    laps: list[ListedLap]
    status: str
    target: float | None
    examples_to_target: float | None
    test: float | None
    schema: RecordSchema
    lower_is_better: bool = False


RECORD_DECODER = msgspec.json.Decoder(ListedRecord)


class RecordListing(NamedTuple):
    """Records and damaged files below a folder."""

    rows: pd.DataFrame
    """one row per record with the columns of `RECORD_COLUMNS`, sorted by path"""
    damaged_files: dict[str, str]
    """reason why each damaged file is not a record, by path"""


def list_records(root: Path) -> RecordListing:
    """List all records below a folder: those of runs, and those of the trials of sweeps."""
    rows, damaged = [], {}
    for file in find_record_files(str(root)):
        try:
            rows.append(record_to_table_row(file.path, decode_listed_record(read_regular_file(file))))
        except OSError as error:
            damaged[file.path] = error.strerror or str(error)
        except EquipoiseError as error:
            damaged[file.path] = str(error)
    table = pd.DataFrame(sorted(rows), columns=[*RECORD_COLUMNS])
    return RecordListing(table.astype({name: kind for name, kind in RECORD_COLUMNS.items() if kind != "str"}), damaged)


def find_record_files(folder: str, in_trials_folder: bool = False) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a folder that should be records, by their names."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in NON_RECORD_FOLDERS:
                    yield from find_record_files(entry.path, entry.name == "trials")
            elif entry.name == "record.json" or (in_trials_folder and entry.name.endswith(".json")):
                yield entry


def read_regular_file(file: os.DirEntry[str]) -> bytes:
    """Return the content of a file; refuse anything else, since reading a pipe would block."""
    if not file.is_file():
        raise EquipoiseError("path-kind", "it is not a regular file")
    descriptor = os.open(file.path, os.O_RDONLY)  # open() would make twice as many system calls per file
    try:
        content = os.read(descriptor, READ_CHUNK_BYTES)
        while chunk := os.read(descriptor, READ_CHUNK_BYTES):
            content += chunk
    finally:
        os.close(descriptor)
    return content


def decode_listed_record(content: bytes) -> ListedRecord:
    """Decode what the table shows of a record; refuse a file that is not a record."""
    try:
        return RECORD_DECODER.decode(content)
    except msgspec.ValidationError as error:
        raise EquipoiseError(
            "run-damaged", f"it is not a record of schema {RECORD_SCHEMA}: {describe_mismatch(error)}"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EquipoiseError("run-damaged", f"it is not valid JSON ({error})") from None


def record_to_table_row(path: str, record: ListedRecord) -> tuple[object, ...]:
    """Return the values of a record in the order of `RECORD_COLUMNS`."""
    config, laps = record.config, record.laps
    if abs(config.global_batch) > MAX_INT64:
        raise EquipoiseError("run-damaged", f"invalid global_batch: {config.global_batch}")
    return (
        path,
        config.name,
        config.model,
        config.optimizer,
        config.workers,
        config.batch_size,
        config.grad_accumulation,
        config.global_batch,
        config.lr,
        config.seed,
        record.status,
        record.target,
        record.lower_is_better,
        record.examples_to_target,
        laps[-1].seen if laps else 0,
        sum([lap.seconds for lap in laps]),
        record.test,
    )
