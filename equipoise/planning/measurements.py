"""Strict readers of the measurement tables system.csv, exchange.csv and statistical.csv: a bad cell is an error."""

import re
from collections.abc import Callable, Collection
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from pandas.errors import EmptyDataError, ParserError

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line, pluralize
from equipoise.number_bounds import MAX_COUNT, MAX_LEARNING_RATE, MIN_LEARNING_RATE
from equipoise.planning.devices.device_rows import parse_devices, require_several_rows
from equipoise.storage.atomic import open_local_copy, require_regular_file
from equipoise.storage.location import validate_location
from equipoise.storage.path_errors import report_path_errors

TARGETS_TABLE = "targets.csv"
"""name of the table of a sweep to several targets"""


class Column(NamedTuple):
    """Values that a column may hold, with their description for error messages."""

    description: str
    is_valid: Callable[["pd.Series[float]"], "pd.Series[bool]"]
    may_be_empty: bool = False


COUNT_COLUMN = Column(
    "a whole number from 1 to 1e12", lambda values: (values >= 1) & (values <= MAX_COUNT) & (values % 1 == 0)
)
EXAMPLES_COLUMN = Column("a number from 1 to 1e18", lambda values: (values >= 1) & (values <= 1e18))
LEARNING_RATE_COLUMN = Column(
    f"a number from {MIN_LEARNING_RATE:g} to {MAX_LEARNING_RATE:g}",
    lambda values: (values >= MIN_LEARNING_RATE) & (values <= MAX_LEARNING_RATE),
    may_be_empty=True,
)
SECONDS_COLUMN = Column("a number of seconds from 1e-7 to 1e4", lambda values: (values >= 1e-7) & (values <= 1e4))
PACE_SD_COLUMN = Column("a number from 0 to 10", lambda values: (values >= 0) & (values <= 10))
JOULES_COLUMN = Column(
    "a number of joules from 1e-9 to 1e12, or empty",
    lambda values: (values >= 1e-9) & (values <= 1e12),
    may_be_empty=True,
)
DATA_SECONDS_COLUMN = Column(
    "a number of seconds from 0 to 1e4, or empty", lambda values: (values >= 0) & (values <= 1e4), may_be_empty=True
)
READ_AHEAD_COLUMN = Column("0, 1 or empty", lambda values: values.isin([0, 1]), may_be_empty=True)
SYSTEM_COLUMNS = {"nodes": COUNT_COLUMN, "workers": COUNT_COLUMN, "batch": COUNT_COLUMN, "seconds": SECONDS_COLUMN}
OPTIONAL_COLUMNS = (
    "kind",
    "device",
    "nodes",
    "workers",
    "exchange",
    "gradient_bytes",
    "bits_per_second",
    "sent_bytes",
    "seconds_by_worker",
    "momentum",
    "joules",
    "data_seconds",
    "read_ahead",
)
MIN_NAME_SIMILARITY = 0.83  # of a column to an optional one, of which it then is a misspelling: one letter in eight
EXCHANGE_KINDS = ("sum", "message")  # all workers sum so many bytes; one worker sends them to the next
EXCHANGE_COLUMNS = {"nodes": COUNT_COLUMN, "workers": COUNT_COLUMN, "bytes": COUNT_COLUMN, "seconds": SECONDS_COLUMN}
STATISTICAL_COLUMNS = {
    "global_batch": COUNT_COLUMN,
    "lr": LEARNING_RATE_COLUMN,
    "seed": Column("a whole number", lambda values: values % 1 == 0, may_be_empty=True),
    "examples": EXAMPLES_COLUMN,
    "reached": Column("0 or 1", lambda values: values.isin([0, 1])),
}
TARGET_COLUMNS = {
    "target": Column("a finite number", lambda values: values.abs() < np.inf),
    **STATISTICAL_COLUMNS,
}


def read_step_times(path: Path) -> pd.DataFrame:
    """Read rows of nodes, workers, batch and seconds per step; further columns are kept as they are.

    Some of them are checked: `pace_sd`, the standard deviation of log seconds between timings of one setting,
    `gradient_bytes`, the size of the gradient, which should be equal in all rows, `joules`, the energy of a step of all
    workers, which may be empty, `data_seconds`, the seconds waiting for batches, `read_ahead`, whether other processes
    read them, and `device`, the kind of worker, of which each has several rows.
    """
    table = read_table(path, SYSTEM_COLUMNS)
    optional = {
        "pace_sd": PACE_SD_COLUMN,
        "gradient_bytes": COUNT_COLUMN,
        "joules": JOULES_COLUMN,
        "data_seconds": DATA_SECONDS_COLUMN,
        "read_ahead": READ_AHEAD_COLUMN,
    }
    for name, column in optional.items():
        if name in table:
            table[name] = parse_numbers(path, table[name], column)
    require_worker_per_node(path, table)
    return require_several_rows(path, parse_devices(path, table))


def read_exchange_times(path: Path, step_times: pd.DataFrame) -> pd.DataFrame:
    """Read rows of nodes, workers, kind (`sum` if missing), bytes and seconds of exchanges timed without training.

    A column `share` is added: bytes over the gradient's bytes, which the table of step times holds.
    """
    table = read_table(path, EXCHANGE_COLUMNS)
    table["kind"] = table["kind"].str.strip() if "kind" in table else EXCHANGE_KINDS[0]
    if not (known := table["kind"].isin(EXCHANGE_KINDS)).all():
        row = int(np.flatnonzero(~known)[0])
        raise EquipoiseError(
            "table-invalid",
            f"{path}, row {row + 2}, column kind: must be {' or '.join(EXCHANGE_KINDS)}, got {table.kind[row]!r}",
        )
    require_worker_per_node(path, table)
    if len(single := table.index[table.workers < 2]):
        raise EquipoiseError(
            "table-invalid",
            f"{path}, row {single[0] + 2}, column workers: an exchange needs at least two workers, got 1",
        )
    gradient_sizes = step_times["gradient_bytes"].unique().tolist() if "gradient_bytes" in step_times else []
    if len(gradient_sizes) != 1:
        raise EquipoiseError(
            "table-invalid",
            f"cannot use {path}: the table of step times must hold exactly one value of gradient_bytes,"
            f" found {len(gradient_sizes)}",
        )
    return parse_devices(path, table.assign(share=table.bytes / gradient_sizes[0]))


def require_worker_per_node(path: Path, table: pd.DataFrame, column: str = "workers") -> None:
    """Refuse a row with fewer workers than nodes; `column` has the workers."""
    wrong = table.index[table[column] < table.nodes]
    if len(wrong):
        raise EquipoiseError(
            "table-invalid",
            f"{path}, row {wrong[0] + 2}, column {column}: fewer workers than nodes",
            "count the workers of all nodes",
        )


def read_examples_to_target(path: Path) -> pd.DataFrame:
    """Read rows of global_batch, lr, seed, examples and reached; lr and seed may be empty where they are unknown.

    A run counts once: two rows of one batch, learning rate and seed are refused, unless columns `exchange`, `workers`
    or `momentum` tell them apart. Runs without a seed may repeat.
    """
    texts = read_checked_cells(path, STATISTICAL_COLUMNS)
    table = parse_columns(path, texts, STATISTICAL_COLUMNS)
    require_distinct_runs(path, table, texts["seed"])
    return table


def read_target_crossings(path: Path) -> pd.DataFrame:
    """Read the runs of a sweep to several targets: rows of target and the columns of `read_examples_to_target`."""
    return read_table(path, TARGET_COLUMNS)


def require_distinct_runs(path: Path, runs: pd.DataFrame, seed_texts: "pd.Series[str]") -> None:
    """Refuse two rows of the same run; seeds are compared as whole numbers, of which floats do not hold all digits."""
    first_rows: dict[tuple[object, ...], int] = {}
    learning_rates = runs.lr.astype(object).where(runs.lr.notna(), None)  # NaN does not equal itself
    column = "" if "exchange" in runs else " (or, in a column exchange, the way of exchange)"
    kinds = [runs[name].str.strip() for name in ("exchange", "workers", "momentum") if name in runs]
    for row, (batch, lr, text) in enumerate(zip(runs.global_batch, learning_rates, seed_texts, strict=True)):
        if not text.strip():
            continue
        run = (batch, lr, parse_whole_number(text), *(kind[row] for kind in kinds))
        first = first_rows.setdefault(run, row)
        if first != row:
            is_copy = all(runs[name][first] == runs[name][row] for name in ("examples", "reached"))
            raise EquipoiseError(
                "table-invalid",
                f"{path}, rows {first + 2} and {row + 2}: both are of global batch {batch:g}, lr {format_lr(lr)} and"
                f" seed {text.strip()}{'' if is_copy else ', with different results'}",
                "keep one of them" if is_copy else f"keep the right one, or give each run the seed{column} that it had",
            )


def parse_whole_number(text: str) -> int:
    """Parse a cell that was found to hold a whole number, such as 7, 7.0 or 1e3."""
    try:
        return int(Decimal(text.strip()))
    except InvalidOperation:  # a notation that pandas knows and decimal does not
        return int(pd.to_numeric(text))


def format_lr(lr: float | None) -> str:
    """Format a learning rate that may be unknown."""
    return "unknown" if lr is None else f"{lr:g}"


def read_table(path: Path, columns: dict[str, Column]) -> pd.DataFrame:
    """Read a CSV file and check the given columns cell by cell."""
    return parse_columns(path, read_checked_cells(path, columns), columns)


def parse_columns(path: Path, texts: pd.DataFrame, columns: dict[str, Column]) -> pd.DataFrame:
    """Parse the given columns as numbers, and keep all others as texts."""
    return texts.assign(**{name: parse_numbers(path, texts[name], column) for name, column in columns.items()})


def read_checked_cells(path: Path, columns: Collection[str]) -> pd.DataFrame:
    """Read the cells of a CSV file as texts; refuse one without the given columns or with fewer than two rows."""
    texts = read_cells(path, columns)
    missing = [name for name in columns if name not in texts.columns]
    if missing:
        header = "|".join(map(str, texts.columns))[:200]
        raise EquipoiseError(
            "table-invalid",
            f"{path} has no column {', '.join(missing)}: its first line reads {header!r}, it needs {','.join(columns)}",
        )
    if duplicates := [
        name for name in (*columns, *OPTIONAL_COLUMNS) if f"{name}.1" in texts.columns
    ]:  # pandas' name of the second
        raise EquipoiseError("table-invalid", f"{path} has two columns named {duplicates[0]}", "keep one of them")
    require_no_misspelt_columns(path, list(map(str, texts.columns)), columns)
    if not isinstance(texts.index, pd.RangeIndex):
        raise EquipoiseError(
            "table-invalid", f"{path} has rows with more cells than its first line has columns", "name every column"
        )
    if len(texts) < 2:
        raise EquipoiseError(
            "measurements-missing",
            f"{path} has {pluralize(len(texts), 'row')}: a curve needs at least two",
            "add measurements of further settings",
        )
    return texts


def require_no_misspelt_columns(path: Path, names: Collection[str], columns: Collection[str]) -> None:
    """Refuse a column whose name is nearly that of an optional one: it would be ignored without a word."""
    missing = [name for name in OPTIONAL_COLUMNS if name not in names]
    for name in {*names} - {*columns, *OPTIONAL_COLUMNS}:
        if similar := get_close_matches(name.strip().lower(), missing, 1, MIN_NAME_SIMILARITY):
            raise EquipoiseError(
                "table-invalid",
                f"{path} has a column {name[:40]!a}, which is none that is known: did you mean {similar[0]}?",
                "correct its name, or give it one that is less like it",
            )


def read_cells(path: Path, columns: Collection[str]) -> pd.DataFrame:
    """Read all cells of a CSV file as texts; the error names the columns that it should have."""
    validate_location(str(path))  # first, since messages repeat the location
    require_regular_file(path)
    problem, remedy = f"cannot read {path} as a table", f"it needs the columns {', '.join(columns)}"
    with report_path_errors(problem, remedy):
        try:
            with open_local_copy(path) as file:
                return pd.read_csv(file, dtype=str, keep_default_na=False, skipinitialspace=True)
        except EquipoiseError as error:
            raise EquipoiseError(error.code, f"{problem}: {first_error_line(error)}", remedy) from error
        except EmptyDataError:
            raise EquipoiseError("table-invalid", f"{problem}: it is empty", remedy) from None
        except ParserError as error:
            raise EquipoiseError("table-invalid", f"{problem}: {describe_torn_line(str(error))}", remedy) from error
        except ValueError as error:  # text that is not UTF-8, among others
            raise EquipoiseError("table-invalid", f"{problem}: {first_error_line(error)}", remedy) from error


def describe_torn_line(message: str) -> str:
    """Return what pandas found wrong with the shape of a table, in our words."""
    if match := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", message):
        columns, line, cells = match.groups()
        return f"line {line} has {cells} cells, and the lines before it have {columns}"
    if match := re.search(r"EOF inside string starting at row (\d+)", message):
        return f"a quotation mark of line {int(match[1]) + 1} is not closed"
    return message.strip().partition("\n")[0]


def parse_numbers(path: Path, cells: "pd.Series[str]", column: Column) -> "pd.Series[float]":
    """Parse a column as numbers; the error names the first invalid cell."""
    values = pd.to_numeric(cells, errors="coerce").astype(float)
    valid = column.is_valid(values)
    if column.may_be_empty:
        valid |= cells.str.strip() == ""
    if not valid.all():
        row = int(np.flatnonzero(~valid)[0])
        raise EquipoiseError(
            "table-invalid",
            f"{path}, row {row + 2}, column {cells.name}: must be {column.description}, got {cells.iloc[row]!r}",
        )
    return values
