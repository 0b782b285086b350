"""Measurements as tables (system.csv, exchange.csv, statistical.csv), read strictly: a slip is named and not fitted."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.storage import atomic as store
from equipoise.storage import location


class Column(NamedTuple):
    """What a column may hold."""

    words: str
    holds: Callable[["pd.Series[float]"], "pd.Series[bool]"]
    may_be_empty: bool = False


MOST = 10**12  # of any count: more than there is, and few enough for arithmetic
COUNT = Column("a whole number from 1 to 1e12", lambda values: (values >= 1) & (values <= MOST) & (values % 1 == 0))
AMOUNT = Column("a number above 0 and up to 1e18", lambda values: (values > 0) & (values <= 1e18))
SECONDS = Column("a number of seconds from 1e-7 to 1e4", lambda values: (values >= 1e-7) & (values <= 1e4))
PACE_SD = Column("a number from 0 to 10", lambda values: (values >= 0) & (values <= 10))
SYSTEM = {"nodes": COUNT, "workers": COUNT, "batch": COUNT, "seconds": SECONDS}
KINDS = ("sum", "message")  # all workers sum so many bytes; one hands them to the next
EXCHANGE = {"nodes": COUNT, "workers": COUNT, "bytes": COUNT, "seconds": SECONDS}
STATISTICAL = {
    "global_batch": COUNT,
    "lr": Column(*AMOUNT[:2], may_be_empty=True),
    "seed": Column("a whole number", lambda values: values % 1 == 0, may_be_empty=True),
    "examples": AMOUNT,
    "reached": Column("0 or 1", lambda values: values.isin([0, 1])),
}


def system(path: Path) -> pd.DataFrame:
    """Rows of nodes, workers, batch and seconds a step; more columns may follow and are kept as they are.

    Two are known: `pace_sd`, the standard deviation of log seconds between timings of one setting, and
    `gradient_bytes`, the same in all rows.
    """
    table = read(path, SYSTEM)
    for name, column in (("pace_sd", PACE_SD), ("gradient_bytes", COUNT)):
        if name in table:
            table[name] = numbers(path, table[name], column)
    require_worker_a_node(path, table)
    return table


def exchange(path: Path, system: pd.DataFrame) -> pd.DataFrame:
    """Rows of nodes, workers, kind, bytes and seconds of exchanges by themselves; sums, if no kind is told.

    `share` is added: of the gradient's bytes, which the rows of steps tell.
    """
    table = read(path, EXCHANGE)
    table["kind"] = table["kind"].str.strip() if "kind" in table else KINDS[0]
    if not (known := table["kind"].isin(KINDS)).all():
        row = int(np.flatnonzero(~known)[0])
        raise ValueError(f"{path}, row {row + 2}, column kind: must be {' or '.join(KINDS)}, got {table.kind[row]!r}")
    require_worker_a_node(path, table)
    if len(alone := table.index[table.workers < 2]):
        raise ValueError(f"{path}, row {alone[0] + 2}, column workers: an exchange takes two workers at least, got 1")
    whole = system["gradient_bytes"].unique().tolist() if "gradient_bytes" in system else []
    if len(whole) != 1:
        raise ValueError(f"{path} needs one gradient_bytes in the table of steps beside it, found {len(whole)}")
    return table.assign(share=table.bytes / whole[0])


def require_worker_a_node(path: Path, table: pd.DataFrame) -> None:
    """Refuse nodes without a worker."""
    wrong = table.index[table.workers < table.nodes]
    if len(wrong):
        raise ValueError(
            f"{path}, row {wrong[0] + 2}, column workers: fewer workers than nodes; workers are of all nodes"
        )


def statistical(path: Path) -> pd.DataFrame:
    """Rows of global_batch, lr, seed, examples and reached; lr may be empty where it was not kept."""
    return read(path, STATISTICAL)


def read(path: Path, columns: dict[str, Column]) -> pd.DataFrame:
    """The table in a file, its columns checked cell by cell."""
    location.require_plain(str(path))  # before its name stands in what is said
    store.require_file(path)
    try:
        with store.fetched(path) as file:
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
    return texts.assign(**{name: numbers(path, texts[name], column) for name, column in columns.items()})


def numbers(path: Path, texts: "pd.Series[str]", column: Column) -> "pd.Series[float]":
    """A column as numbers; the first cell that is none is named."""
    values = pd.to_numeric(texts, errors="coerce").astype(float)
    good = column.holds(values)
    if column.may_be_empty:
        good |= texts.str.strip() == ""
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise ValueError(f"{path}, row {row + 2}, column {texts.name}: must be {column.words}, got {texts.iloc[row]!r}")
    return values
