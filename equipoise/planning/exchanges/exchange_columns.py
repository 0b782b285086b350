"""Optional columns of system.csv and statistical.csv on the exchange, and the table of sums by each algorithm."""

from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.planning.devices.device_rows import parse_devices
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.measurements import (
    COUNT_COLUMN,
    SECONDS_COLUMN,
    Column,
    parse_columns,
    parse_numbers,
    read_checked_cells,
    read_examples_to_target,
    read_step_times,
    require_worker_per_node,
)
from equipoise.planning.parameter_servers.worker_speeds import SECONDS_BY_WORKER_COLUMN, parse_seconds_by_worker
from equipoise.registries.all_reduce_registry import ALL_REDUCE_ALGORITHMS, require_runnable_algorithm

MAX_BYTES = 1e18
BYTES_COLUMN = Column(
    "a number of bytes from 0 to 1e18", lambda values: (values >= 0) & (values <= MAX_BYTES), may_be_empty=True
)
ENCODE_COLUMN = Column(
    "a number of seconds from 0 to 1e4", lambda values: (values >= 0) & (values <= 1e4), may_be_empty=True
)
RATE_COLUMN = Column(
    "a number of bits per second from 1 to 1e15", lambda values: (values >= 1) & (values <= 1e15), may_be_empty=True
)
STEP_EXCHANGE_COLUMNS = {
    "sent_bytes": BYTES_COLUMN,
    "encode_seconds": ENCODE_COLUMN,
    "bits_per_second": RATE_COLUMN,
    "peak_bytes": BYTES_COLUMN,
}
RUN_EXCHANGE_COLUMNS = {
    "workers": COUNT_COLUMN._replace(may_be_empty=True),
    "momentum": Column("a number from 0 to below 1", lambda values: (values >= 0) & (values < 1), may_be_empty=True),
}
ALGORITHM_COLUMNS = {"ranks": COUNT_COLUMN, "bytes": COUNT_COLUMN, "seconds": SECONDS_COLUMN}
MAX_PART = 2.0  # of the seconds of a step that a part of it may take: both are timed, and not at the same time
BACKEND = "backend"
TIMED_ALGORITHMS = (BACKEND, *ALL_REDUCE_ALGORITHMS)  # in a table of sums


def read_steps_by_exchange(path: Path) -> pd.DataFrame:
    """Read step times with the optional columns on their exchange and their workers, empty numbers as NaN."""
    table = parse_exchange_columns(path, read_step_times(path), STEP_EXCHANGE_COLUMNS)
    require_parts_of_steps(path, table)
    if SECONDS_BY_WORKER_COLUMN in table:
        table[SECONDS_BY_WORKER_COLUMN] = parse_seconds_by_worker(path, table)
    return table


def require_parts_of_steps(path: Path, table: pd.DataFrame) -> None:
    """Refuse a row whose step is far shorter than its encoding, or than its bytes take between single workers."""
    parts = {}
    if "encode_seconds" in table:
        parts["encode_seconds"] = table.encode_seconds
    if "sent_bytes" in table and "bits_per_second" in table:
        alone = (table.nodes == table.workers) & (table.nodes > 1)  # of others, some bytes stay within a node
        parts["sent_bytes"] = (8 * table.sent_bytes / table.bits_per_second).where(alone)
    for column, seconds in parts.items():
        if len(wrong := np.flatnonzero(seconds > MAX_PART * table.seconds)):
            row = wrong[0]
            took = "it takes" if column == "encode_seconds" else "at bits_per_second they take"
            raise EquipoiseError(
                "table-invalid",
                f"{path}, row {row + 2}, column {column}: {took} {seconds[row]:.3g} s, and the whole step"
                f" {table.seconds[row]:.3g} s",
                "correct the row, or leave the cell empty",
            )


def read_runs_by_exchange(path: Path) -> pd.DataFrame:
    """Read training runs with the optional columns `exchange`, `workers` and `momentum`, an empty number as NaN."""
    return parse_exchange_columns(path, read_examples_to_target(path), RUN_EXCHANGE_COLUMNS)


def parse_exchange_columns(path: Path, table: pd.DataFrame, columns: dict[str, Column]) -> pd.DataFrame:
    """Parse the names in `exchange`, and those of the given columns that the table has."""
    values = {name: parse_numbers(path, table[name], rule) for name, rule in columns.items() if name in table}
    if "exchange" not in table:
        return table.assign(**values)
    return table.assign(**values, exchange=[parse_cell(path, row, text) for row, text in enumerate(table.exchange)])


def parse_cell(path: Path, row: int, text: str) -> str:
    """Parse the name of an exchange in a cell and return it without defaults; the error names the cell."""
    try:
        return parse_exchange(text).name
    except EquipoiseError as error:
        raise EquipoiseError("table-invalid", f"{path}, row {row + 2}, column exchange: {error.problem}") from error


def read_algorithm_times(path: Path) -> pd.DataFrame:
    """Read rows of algorithm, ranks, bytes and seconds of sums timed alone; `nodes` may say on how many they were.

    Rows of `backend` are left out: how it sums is not known.
    """
    cells = read_checked_cells(path, ("algorithm", *ALGORITHM_COLUMNS))
    table = parse_columns(path, cells, ALGORITHM_COLUMNS)
    table["algorithm"] = table.algorithm.str.strip()
    if len(unknown := np.flatnonzero(~table.algorithm.isin(TIMED_ALGORITHMS))):
        raise EquipoiseError(
            "table-invalid",
            f"{path}, row {unknown[0] + 2}, column algorithm: must be one of {', '.join(TIMED_ALGORITHMS)},"
            f" got {table.algorithm[unknown[0]][:40]!a}",
        )
    if len(single := np.flatnonzero(table.ranks < 2)):
        raise EquipoiseError("table-invalid", f"{path}, row {single[0] + 2}, column ranks: a sum needs at least 2")
    if "nodes" in table:
        table["nodes"] = parse_numbers(path, table["nodes"], COUNT_COLUMN)
        require_worker_per_node(path, table, "ranks")
    require_runnable_rows(path, table)
    table = parse_devices(path, table)
    return table[table.algorithm != BACKEND].reset_index(drop=True)


def require_runnable_rows(path: Path, table: pd.DataFrame) -> None:
    """Refuse a row of an algorithm that so many ranks cannot run: no such sum was timed."""
    for row, (name, ranks) in enumerate(zip(table.algorithm, table.ranks, strict=True)):
        try:
            require_runnable_algorithm(name, int(ranks))
        except EquipoiseError as error:
            raise EquipoiseError(
                "table-invalid",
                f"{path}, row {row + 2}, column algorithm: {error.problem}",
                "correct the row, or remove it",
            ) from error
