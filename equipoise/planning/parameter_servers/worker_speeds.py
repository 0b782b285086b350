"""Measured seconds that each worker computes in a step, and what unequal workers cost.

    synchronous       slowest + exchange                           the others wait
    without it        slowest of the others + exchange             one worker fewer
    asynchronous      n / sum of 1 / (own seconds + exchange)      nobody waits: the harmonic mean

for as many examples as n workers take in a step. Whether fewer seconds for as many examples lead to the target sooner
depends on how many more examples gradients of older weights need.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.number_bounds import Count, NonNegativeCount, PositiveNumber
from equipoise.planning.parameter_servers.asynchronous_rate import asynchronous_step_seconds, free_staleness

if TYPE_CHECKING:
    import pandas as pd  # commands that read a plan and no table start sooner without it

SECONDS_BY_WORKER_COLUMN = "seconds_by_worker"
MIN_SLOWDOWN = 1.2  # of the slowest worker, in times the others, from which a plan says so
MAX_WORKER_SECONDS = 1e4


@dataclass(frozen=True, kw_only=True)
class WorkerSpeeds:
    """Seconds that each worker computes in a step where they differ, and what that costs."""

    nodes: Count
    """number of nodes"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    seconds_by_worker: tuple[PositiveNumber, ...]
    """seconds that each worker computes in a step, in the order of ranks"""
    slowest: NonNegativeCount
    """rank of the slowest worker, counted from 0"""
    slowdown: PositiveNumber
    """seconds of the slowest worker over the median of the others"""
    synchronous_seconds: PositiveNumber
    """seconds of computing in a step that waits for the slowest worker"""
    without_slowest_seconds: PositiveNumber
    """the same in which the others take as many examples without it, with steps that wait for each of them"""
    asynchronous_seconds: PositiveNumber
    """the same in which workers that wait for no other take as many examples"""
    staleness: NonNegativeCount
    """smallest S with which `async:S` lets no worker wait for the slowest one, in whatever order gradients arrive"""

    def __post_init__(self) -> None:
        if len(self.seconds_by_worker) != self.workers or self.slowest >= self.workers:
            raise ValueError(f"`seconds_by_worker` and `slowest` are not those of {self.workers} workers")

    @property
    def asynchronous_gain(self) -> float:
        """How many times the examples of synchronous steps workers take that wait for no other."""
        return self.synchronous_seconds / self.asynchronous_seconds

    @property
    def gain_without_slowest(self) -> float:
        """How many times the examples of all workers the others take without the slowest one."""
        return self.synchronous_seconds / self.without_slowest_seconds


def compare_workers(nodes: int, workers: int, batch: int, seconds_by_worker: Sequence[float]) -> WorkerSpeeds | None:
    """Return what unequal workers cost; None where the slowest one takes hardly longer than the others.

    Only computing counts: what a step takes beyond it is the exchange and the wait for the slowest worker, and a table
    does not tell one from the other.
    """
    if len(seconds_by_worker) != workers or not are_unequal(seconds_by_worker):
        return None
    slowest, others = split_slowest(seconds_by_worker)
    return WorkerSpeeds(
        nodes=nodes,
        workers=workers,
        batch=batch,
        seconds_by_worker=tuple(seconds_by_worker),
        slowest=slowest,
        slowdown=seconds_by_worker[slowest] / statistics.median(others),
        synchronous_seconds=max(seconds_by_worker),
        without_slowest_seconds=max(others) * workers / (workers - 1),
        asynchronous_seconds=float(asynchronous_step_seconds(seconds_by_worker)),
        staleness=free_staleness(seconds_by_worker),
    )


def are_unequal(seconds_by_worker: Sequence[float]) -> bool:
    """Return whether the slowest worker takes clearly longer than the others."""
    if len(seconds_by_worker) < 2 or min(seconds_by_worker) <= 0:
        return False
    slowest, others = split_slowest(seconds_by_worker)
    return seconds_by_worker[slowest] >= MIN_SLOWDOWN * statistics.median(others)


def split_slowest(seconds_by_worker: Sequence[float]) -> tuple[int, list[float]]:
    """Return the rank of the slowest worker, and the seconds of the others."""
    slowest = max(range(len(seconds_by_worker)), key=lambda rank: seconds_by_worker[rank])
    return slowest, [seconds for rank, seconds in enumerate(seconds_by_worker) if rank != slowest]


def describe_speeds(speeds: WorkerSpeeds) -> str:
    """Return in a sentence which worker the others wait for, and what other ways would gain at most."""
    text = (
        f"of {speeds.workers} workers, rank {speeds.slowest} takes {speeds.slowdown:.2g} times as long as others, and a"
        f" synchronous step waits for it: --sync async:{speeds.staleness} would take at most"
        f" {speeds.asynchronous_gain:.2g} times as many examples a second, of which it needs more"
    )
    if speeds.gain_without_slowest <= 1:
        return text
    gain = f"{speeds.gain_without_slowest:.2g}"
    return f"{text}; without this worker, the others would take at most {gain} times as many"


def select_worker_speeds(rows: "pd.DataFrame | None", setting: tuple[int, int, int] | None) -> WorkerSpeeds | None:
    """Return the speeds in a table of step times at nodes, workers and batch, or where most workers were timed.

    None without the column `seconds_by_worker`, or where workers are equal.
    """
    known = list_timed_workers(rows)
    if not known:
        return None
    index = find_nearest_setting([row[:3] for row in known], setting)
    return compare_workers(*known[index])


def list_timed_workers(rows: "pd.DataFrame | None") -> list[tuple[int, int, int, tuple[float, ...]]]:
    """Return nodes, workers, batch and the seconds of each worker, of the settings where these were timed."""
    if rows is None or SECONDS_BY_WORKER_COLUMN not in rows:
        return []
    columns = (rows[name] for name in ("nodes", "workers", "batch", SECONDS_BY_WORKER_COLUMN))
    return [
        (int(nodes), int(workers), int(batch), seconds)
        for nodes, workers, batch, cell in zip(*columns, strict=True)
        if (seconds := split_cell(cell))
    ]


def find_nearest_setting(settings: Sequence[tuple[int, ...]], wanted: tuple[int, ...] | None) -> int:
    """Return the position of the setting of most workers, or of the wanted workers at the nearest batch."""
    same = [index for index, setting in enumerate(settings) if wanted and setting[:2] == wanted[:2]]
    if wanted and same:
        return min(same, key=lambda index: (abs(settings[index][2] - wanted[2]), index))
    return max(range(len(settings)), key=lambda index: (settings[index][1], settings[index][2]))


def list_seconds_by_worker(rows: "pd.DataFrame | None") -> dict[int, dict[int, tuple[float, ...]]]:
    """Return the seconds that each of unequal workers computes, by the number of workers and the batch."""
    seconds: dict[int, dict[int, tuple[float, ...]]] = {}
    for _, workers, batch, seconds_by_worker in list_timed_workers(rows):
        if are_unequal(seconds_by_worker):
            seconds.setdefault(workers, {})[batch] = seconds_by_worker
    return seconds


def split_cell(cell: object) -> tuple[float, ...]:
    """Return the seconds in a cell, which may be a text as in files, or missing."""
    if isinstance(cell, str):
        return tuple(map(float, cell.split()))
    return tuple(cell) if isinstance(cell, Sequence) else ()


def format_seconds_by_worker(seconds: Sequence[float]) -> str:
    """Format the seconds of each worker as a cell of a table; empty where workers are equal."""
    return " ".join(f"{value:.6g}" for value in seconds)


def parse_seconds_by_worker(path: Path, table: "pd.DataFrame") -> list[tuple[float, ...]]:
    """Parse the cells of the column: nothing, or a number of seconds for each worker; an error names the row."""
    cells = zip(table[SECONDS_BY_WORKER_COLUMN], table.workers, strict=True)
    return [parse_seconds_cell(path, row, str(text), int(workers)) for row, (text, workers) in enumerate(cells)]


def parse_seconds_cell(path: Path, row: int, text: str, workers: int) -> tuple[float, ...]:
    """Parse the cell of one row."""
    try:
        values = split_cell(text)
    except ValueError:
        values = (0.0,)
    if values and not (len(values) == workers and all(0 < value <= MAX_WORKER_SECONDS for value in values)):
        raise EquipoiseError(
            "table-invalid",
            f"{path}, row {row + 2}, column {SECONDS_BY_WORKER_COLUMN}: must be empty, or"
            f" {pluralize(workers, 'number')} of seconds above 0 with spaces between them, got {text[:40]!r}",
        )
    return values
