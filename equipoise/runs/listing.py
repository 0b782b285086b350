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

from equipoise.config import Trial
from equipoise.runs.record import SCHEMA

PARTS = ("tune", "checkpoints", "system")
"""folders of a sweep or a run that hold no records"""
COLUMNS = {
    "path": "str",
    "workload": "str",
    "model": "str",
    "optimizer": "str",
    "workers": "int64",
    "batch": "int64",
    "accumulate": "int64",
    "global_batch": "int64",
    "lr": "float64",
    "seed": "int64",
    "ended": "str",
    "target": "float64",
    "examples_to_target": "float64",
    "examples": "int64",
    "seconds": "float64",
    "test": "float64",
}
"""in order, with what they hold; `examples` were seen in all, `seconds` are of training"""
EMPTY = ("model", "examples_to_target", "test")
"""what a record may leave open"""
HOLDS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int64": lambda value: isinstance(value, int) and value.bit_length() < 64,
    "float64": lambda value: isinstance(value, float | int),
}
GOOD: set[tuple[type, ...]] = set()
"""types of rows that were looked at column by column"""
LARGEST = 1 << 63
PART = 1 << 16  # bytes of a file that are read at once
DEFAULTS = {field.name: field.default for field in fields(Trial)}
"""of what was asked by an earlier release, which knew fewer options"""


class Listing(NamedTuple):
    """What lies below a folder."""

    rows: pd.DataFrame
    """with the columns of `COLUMNS`, in the order of paths"""
    damaged: dict[str, str]
    """files that are no whole record, by path, and why not"""


def listed(root: Path) -> Listing:
    """All records below a folder: those of runs, and those of a sweep's trials."""
    rows, damaged = [], {}
    for file in files(str(root)):
        try:
            rows.append(row(file.path, read(file)))
        except OSError as error:
            damaged[file.path] = error.strerror or str(error)
        except ValueError as error:
            damaged[file.path] = str(error)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            damaged[file.path] = f"not made as a record is: {type(error).__name__}: {error}"
    table = pd.DataFrame(sorted(rows), columns=[*COLUMNS])
    return Listing(table.astype({name: kind for name, kind in COLUMNS.items() if kind != "str"}), damaged)


def files(folder: str, trials: bool = False) -> Iterator[os.DirEntry[str]]:
    """What should be records, below a folder that holds a sweep's trials or not."""
    with os.scandir(folder) as entries:
        for one in entries:
            if one.name.startswith("."):
                continue
            if one.is_dir(follow_symlinks=False):
                if one.name not in PARTS:
                    yield from files(one.path, one.name == "trials")
            elif one.name == "record.json" or (trials and one.name.endswith(".json")):
                yield one


def read(file: os.DirEntry[str]) -> Any:
    """What a file holds."""
    if not file.is_file():
        raise ValueError("it is no file")  # a pipe would be waited for
    place = os.open(file.path, os.O_RDONLY)  # a file of Python's asks the system twice as much for each
    try:
        held = os.read(place, PART)
        while part := os.read(place, PART):
            held += part
    finally:
        os.close(place)
    return orjson.loads(held)


def row(path: str, facts: Any) -> tuple[object, ...]:
    """A record in the order of `COLUMNS`; raises what is wrong with it."""
    if facts["schema"] != SCHEMA:
        raise ValueError(f"it is no record of schema {SCHEMA}")
    trial, laps = DEFAULTS | facts["trial"], facts["laps"]
    workers, batch, accumulate = trial["workers"], trial["batch"], trial["accumulate"]
    found = (
        path,
        trial["workload"],
        trial["model"],
        trial["optimizer"],
        workers,
        batch,
        accumulate,
        workers * batch * accumulate,
        trial["lr"],
        trial["seed"],
        facts["ended"],
        facts["target"],
        facts["examples_to_target"],
        laps[-1]["seen"] if laps else 0,
        sum([lap["seconds"] for lap in laps]),
        facts["test"],
    )
    counts, kinds = (workers, batch, accumulate, found[7], trial["seed"], found[13]), tuple(map(type, found))
    if kinds in GOOD and min(counts) > -LARGEST and max(counts) < LARGEST:  # as it mostly is
        return found
    for value, (name, kind) in zip(found, COLUMNS.items(), strict=True):
        if not (HOLDS[kind](value) or (value is None and name in EMPTY)):
            raise ValueError(f"its {name} is {str(value)[:40]!r}")
    GOOD.add(kinds)
    return found
