"""Table of all records below a folder, one row each, read without building a Record of every file.

Damaged files are listed beside the table and do not affect the other rows.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pandas as pd

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.runs.record import RECORD_SCHEMA

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
    "examples_to_target": "float64",
    "examples": "int64",
    "seconds": "float64",
    "test": "float64",
}
"""columns in order, with their types; `examples` counts all examples seen, `seconds` the time spent training"""
NULLABLE_COLUMNS = ("model", "examples_to_target", "test")
"""columns that may be null in a record"""
TYPE_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int64": lambda value: isinstance(value, int) and value.bit_length() < 64,
    "float64": lambda value: isinstance(value, float | int),
}
CHECKED_ROW_TYPES: set[tuple[type, ...]] = set()
"""types of rows that have passed the check column by column, so that it runs once per combination"""
INT64_LIMIT = 1 << 63
READ_CHUNK_BYTES = 1 << 16  # bytes per read call
CONFIG_DEFAULTS = {field.name: field.default for field in fields(TrainConfig)}
"""values of options that the release which wrote a record did not have"""


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
            rows.append(record_json_to_row(file.path, parse_json_file(file)))
        except OSError as error:
            damaged[file.path] = error.strerror or str(error)
        except (EquipoiseError, orjson.JSONDecodeError) as error:
            damaged[file.path] = str(error)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            damaged[file.path] = f"not a record: {type(error).__name__}: {error}"
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


def parse_json_file(file: os.DirEntry[str]) -> Any:
    """Parse the JSON in a file."""
    if not file.is_file():
        raise EquipoiseError("path-kind", "it is not a regular file")  # reading a pipe would block
    descriptor = os.open(file.path, os.O_RDONLY)  # open() would make twice as many system calls per file
    try:
        content = os.read(descriptor, READ_CHUNK_BYTES)
        while chunk := os.read(descriptor, READ_CHUNK_BYTES):
            content += chunk
    finally:
        os.close(descriptor)
    return orjson.loads(content)


def record_json_to_row(path: str, record_json: Any) -> tuple[object, ...]:
    """Return the values of a record in the order of `RECORD_COLUMNS`; raise an error if one is missing or invalid."""
    if record_json["schema"] != RECORD_SCHEMA:
        raise EquipoiseError("run-damaged", f"it is not a record of schema {RECORD_SCHEMA}")
    config, laps = CONFIG_DEFAULTS | record_json["config"], record_json["laps"]
    workers, batch_size, grad_accumulation = config["workers"], config["batch_size"], config["grad_accumulation"]
    global_batch, examples = workers * batch_size * grad_accumulation, laps[-1]["seen"] if laps else 0
    row = (
        path,
        config["workload"],
        config["model"],
        config["optimizer"],
        workers,
        batch_size,
        grad_accumulation,
        global_batch,
        config["lr"],
        config["seed"],
        record_json["status"],
        record_json["target"],
        record_json["examples_to_target"],
        examples,
        sum([lap["seconds"] for lap in laps]),
        record_json["test"],
    )
    counts = (workers, batch_size, grad_accumulation, global_batch, config["seed"], examples)
    row_types = tuple(map(type, row))
    if row_types in CHECKED_ROW_TYPES and min(counts) > -INT64_LIMIT and max(counts) < INT64_LIMIT:  # the usual case
        return row
    for value, (name, kind) in zip(row, RECORD_COLUMNS.items(), strict=True):
        if not (TYPE_CHECKS[kind](value) or (value is None and name in NULLABLE_COLUMNS)):
            raise EquipoiseError("run-damaged", f"invalid {name}: {str(value)[:40]!r}")
    CHECKED_ROW_TYPES.add(row_types)
    return row
