"""Measurements as tables (system.csv, exchange.csv, statistical.csv), read strictly: a slip is named and not fitted."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.storage.atomic import open_local_copy, require_regular_file
from equipoise.storage.location import validate_location


class Column(NamedTuple):
    """What a column may hold."""

    description: str
    is_valid: Callable[["pd.Series[float]"], "pd.Series[bool]"]
    may_be_empty: bool = False


MAX_COUNT = 10**12  # of any count: more than there is, and few enough for arithmetic
COUNT_COLUMN = Column(
    "a whole number from 1 to 1e12", lambda values: (values >= 1) & (values <= MAX_COUNT) & (values % 1 == 0)
)
POSITIVE_COLUMN = Column("a number above 0 and up to 1e18", lambda values: (values > 0) & (values <= 1e18))
SECONDS_COLUMN = Column("a number of seconds from 1e-7 to 1e4", lambda values: (values >= 1e-7) & (values <= 1e4))
PACE_SD_COLUMN = Column("a number from 0 to 10", lambda values: (values >= 0) & (values <= 10))
SYSTEM_COLUMNS = {"nodes": COUNT_COLUMN, "workers": COUNT_COLUMN, "batch": COUNT_COLUMN, "seconds": SECONDS_COLUMN}
EXCHANGE_KINDS = ("sum", "message")  # all workers sum so many bytes; one hands them to the next
EXCHANGE_COLUMNS = {"nodes": COUNT_COLUMN, "workers": COUNT_COLUMN, "bytes": COUNT_COLUMN, "seconds": SECONDS_COLUMN}
STATISTICAL_COLUMNS = {
    "global_batch": COUNT_COLUMN,
    "lr": Column(*POSITIVE_COLUMN[:2], may_be_empty=True),
    "seed": Column("a whole number", lambda values: values % 1 == 0, may_be_empty=True),
    "examples": POSITIVE_COLUMN,
    "reached": Column("0 or 1", lambda values: values.isin([0, 1])),
}


def read_step_times(path: Path) -> pd.DataFrame:
    """Rows of nodes, workers, batch and seconds a step; more columns may follow and are kept as they are.

    Two are known: `pace_sd`, the standard deviation of log seconds between timings of one setting, and
    `gradient_bytes`, the same in all rows.
    """
    table = read_table(path, SYSTEM_COLUMNS)
    for name, column in (("pace_sd", PACE_SD_COLUMN), ("gradient_bytes", COUNT_COLUMN)):
        if name in table:
            table[name] = parse_numbers(path, table[name], column)
    require_worker_per_node(path, table)
    return table


def read_exchange_times(path: Path, step_times: pd.DataFrame) -> pd.DataFrame:
    """Rows of nodes, workers, kind, bytes and seconds of exchanges by themselves; sums, if no kind is told.

    `share` is added: of the gradient's bytes, which the rows of steps tell.
    """
    table = read_table(path, EXCHANGE_COLUMNS)
    table["kind"] = table["kind"].str.strip() if "kind" in table else EXCHANGE_KINDS[0]
    if not (known := table["kind"].isin(EXCHANGE_KINDS)).all():
        row = int(np.flatnonzero(~known)[0])
        raise ValueError(
            f"{path}, row {row + 2}, column kind: must be {' or '.join(EXCHANGE_KINDS)}, got {table.kind[row]!r}"
        )
    require_worker_per_node(path, table)
    if len(alone := table.index[table.workers < 2]):
        raise ValueError(f"{path}, row {alone[0] + 2}, column workers: an exchange takes two workers at least, got 1")
    whole = step_times["gradient_bytes"].unique().tolist() if "gradient_bytes" in step_times else []
    if len(whole) != 1:
        raise ValueError(f"{path} needs one gradient_bytes in the table of steps beside it, found {len(whole)}")
    return table.assign(share=table.bytes / whole[0])


def require_worker_per_node(path: Path, table: pd.DataFrame) -> None:
    """Refuse nodes without a worker."""
    wrong = table.index[table.workers < table.nodes]
    if len(wrong):
        raise ValueError(
            f"{path}, row {wrong[0] + 2}, column workers: fewer workers than nodes; workers are of all nodes"
        )


def read_examples_to_target(path: Path) -> pd.DataFrame:
    """Rows of global_batch, lr, seed, examples and reached; lr may be empty where it was not kept."""
    return read_table(path, STATISTICAL_COLUMNS)


def read_table(path: Path, columns: dict[str, Column]) -> pd.DataFrame:
    """The table in a file, its columns checked cell by cell."""
    validate_location(str(path))  # before its name stands in what is said
    require_regular_file(path)
    try:
        with open_local_copy(path) as file:
            texts = pd.read_csv(file, dtype=str, keep_default_na=False, skipinitialspace=True)
    except (OSError, ValueError) as error:  # pandas' parsing errors are ValueErrors
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error).strip().splitlines()[0]
        raise ValueError(f"{path} is no table: {reason}; it needs the columns {', '.join(columns)}") from error
    missing = [name for name in columns if name not in texts.columns]
    if missing:
        found = "|".join(map(str, texts.columns))[:200]
        raise ValueError(
            f"{path} has no column {', '.join(missing)}: its first line reads {found!r}, it needs {','.join(columns)}"
        )
    if doubled := [name for name in (*columns, "kind") if f"{name}.1" in texts.columns]:  # as pandas calls the second
        raise ValueError(f"{path} has two columns {doubled[0]}: leave one of them")
    if not isinstance(texts.index, pd.RangeIndex):
        raise ValueError(f"{path} has rows with more cells than its first line has columns: give each a name")
    if len(texts) < 2:
        raise ValueError(f"{path} has {len(texts)} row{'s' * (len(texts) != 1)}: a curve needs two at least")
    return texts.assign(**{name: parse_numbers(path, texts[name], column) for name, column in columns.items()})


def parse_numbers(path: Path, cells: "pd.Series[str]", column: Column) -> "pd.Series[float]":
    """A column as numbers; the first cell that is none is named."""
    values = pd.to_numeric(cells, errors="coerce").astype(float)
    good = column.is_valid(values)
    if column.may_be_empty:
        good |= cells.str.strip() == ""
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ValueError(
            f"{path}, row {row + 2}, column {cells.name}: must be {column.description}, got {cells.iloc[row]!r}"
        )
    return values
