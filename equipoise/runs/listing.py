"""Many records as one table: a row each, without the objects that one record is read into.

What is no whole record is named beside the table and costs no other its row.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pandas as pd

from equipoise.config import TrainConfig
from equipoise.runs.record import RECORD_SCHEMA

NON_RECORD_FOLDERS = ("tune", "checkpoints", "system")
"""folders of a sweep or a run that hold no records"""
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
"""in order, with what they hold; `examples` were seen in all, `seconds` are of training"""
NULLABLE_COLUMNS = ("model", "examples_to_target", "test")
"""what a record may leave open"""
TYPE_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int64": lambda value: isinstance(value, int) and value.bit_length() < 64,
    "float64": lambda value: isinstance(value, float | int),
}
CHECKED_ROW_TYPES: set[tuple[type, ...]] = set()
"""types of rows that were looked at column by column"""
INT64_LIMIT = 1 << 63
READ_CHUNK_BYTES = 1 << 16  # bytes of a file that are read at once
CONFIG_DEFAULTS = {field.name: field.default for field in fields(TrainConfig)}
"""of what was asked by an earlier release, which knew fewer options"""


class RecordListing(NamedTuple):
    """What lies below a folder."""

    rows: pd.DataFrame
    """with the columns of `RECORD_COLUMNS`, in the order of paths"""
    damaged_files: dict[str, str]
    """files that are no whole record, by path, and why not"""


def list_records(root: Path) -> RecordListing:
    """All records below a folder: those of runs, and those of a sweep's trials."""
    rows, damaged = [], {}
    for file in find_record_files(str(root)):
        try:
            rows.append(record_json_to_row(file.path, parse_json_file(file)))
        except OSError as error:
            damaged[file.path] = error.strerror or str(error)
        except ValueError as error:
            damaged[file.path] = str(error)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            damaged[file.path] = f"not made as a record is: {type(error).__name__}: {error}"
    table = pd.DataFrame(sorted(rows), columns=[*RECORD_COLUMNS])
    return RecordListing(table.astype({name: kind for name, kind in RECORD_COLUMNS.items() if kind != "str"}), damaged)


def find_record_files(folder: str, in_trials_folder: bool = False) -> Iterator[os.DirEntry[str]]:
    """What should be records, below a folder that holds a sweep's trials or not."""
    with os.scandir(folder) as entries:
        for one in entries:
            if one.name.startswith("."):
                continue
            if one.is_dir(follow_symlinks=False):
                if one.name not in NON_RECORD_FOLDERS:
                    yield from find_record_files(one.path, one.name == "trials")
            elif one.name == "record.json" or (in_trials_folder and one.name.endswith(".json")):
                yield one


def parse_json_file(file: os.DirEntry[str]) -> Any:
    """What a file holds."""
    if not file.is_file():
        raise ValueError("it is no file")  # a pipe would be waited for
    place = os.open(file.path, os.O_RDONLY)  # a file of Python's asks the system twice as much for each
    try:
        held = os.read(place, READ_CHUNK_BYTES)
        while part := os.read(place, READ_CHUNK_BYTES):
            held += part
    finally:
        os.close(place)
    return orjson.loads(held)


def record_json_to_row(path: str, record_json: Any) -> tuple[object, ...]:
    """A record in the order of `RECORD_COLUMNS`; raises what is wrong with it."""
    if record_json["schema"] != RECORD_SCHEMA:
        raise ValueError(f"it is no record of schema {RECORD_SCHEMA}")
    config, laps = CONFIG_DEFAULTS | record_json["config"], record_json["laps"]
    workers, batch_size, grad_accumulation = config["workers"], config["batch_size"], config["grad_accumulation"]
    found = (
        path,
        config["workload"],
        config["model"],
        config["optimizer"],
        workers,
        batch_size,
        grad_accumulation,
        workers * batch_size * grad_accumulation,
        config["lr"],
        config["seed"],
        record_json["status"],
        record_json["target"],
        record_json["examples_to_target"],
        laps[-1]["seen"] if laps else 0,
        sum([lap["seconds"] for lap in laps]),
        record_json["test"],
    )
    counts, kinds = (
        (workers, batch_size, grad_accumulation, found[7], config["seed"], found[13]),
        tuple(map(type, found)),
    )
    if kinds in CHECKED_ROW_TYPES and min(counts) > -INT64_LIMIT and max(counts) < INT64_LIMIT:  # as it mostly is
        return found
    for value, (name, kind) in zip(found, RECORD_COLUMNS.items(), strict=True):
        if not (TYPE_CHECKS[kind](value) or (value is None and name in NULLABLE_COLUMNS)):
            raise ValueError(f"its {name} is {str(value)[:40]!r}")
    CHECKED_ROW_TYPES.add(kinds)
    return found
