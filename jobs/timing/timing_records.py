"""Timings of steps and exchanges, and the files in which a sweep keeps them."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.number_bounds import Count, NonNegativeCount, NonNegativeNumber, PositiveNumber
from equipoise.storage.atomic import read_json
from equipoise.storage.json_decoding import decode_json_value


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """Row of system.csv: the measured step time of one setting."""

    nodes: Count
    """nodes that the workers were on"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    seconds: PositiveNumber
    """seconds per step: the mean over a stretch of laps, then the median of stretches"""
    data_seconds: NonNegativeNumber
    """seconds of a step waiting for batches"""
    exchange_seconds: NonNegativeNumber
    """seconds of a step waiting for the gradient exchange"""
    pace_sd: NonNegativeNumber
    """standard deviation of log seconds between stretches"""
    gradient_bytes: NonNegativeCount
    """bytes of gradients that workers exchange in a step"""
    peak_bytes: Count | None = None
    """most bytes in the tensors of a worker; None where they were not measured"""
    read_ahead: bool = False
    """whether other processes read batches ahead, so that steps wait for data only where reading takes longer"""
    joules: PositiveNumber | None = None
    """energy of a step of all workers; None where their machines tell none"""
    seconds_by_worker: tuple[PositiveNumber, ...] = ()
    """seconds that each worker computes in a step, in the order of ranks, where they differ; else none"""
    repeat: bool = False
    """whether it is a second timing of the same setting, which shows the error of the clock"""


@dataclass(frozen=True, kw_only=True)
class ExchangeTiming:
    """Row of exchange.csv: seconds of an all-reduce of so many bytes, or of a message, with nothing else running."""

    nodes: Count
    """nodes that the workers were on"""
    workers: Count
    """workers on all nodes"""
    kind: Literal["sum", "message"]
    """`sum`: all workers sum so many bytes; `message`: one worker sends them to the next"""
    bytes: Count
    """size of the exchange"""
    seconds: PositiveNumber
    """median seconds"""


@dataclass(frozen=True, kw_only=True)
class UntimedBatch:
    """Batch size that the budget left no time for."""

    batch: Count
    """examples per worker and step"""
    step_seconds: PositiveNumber
    """estimated seconds of a step"""
    timing_seconds: PositiveNumber
    """estimated seconds that timing it takes"""


@dataclass(frozen=True, kw_only=True)
class WorkerCountTimings:
    """Timings on one number of workers, as the file workers-N.json keeps them."""

    rows: list[StepTiming]
    """step times by batch size"""
    too_large: list[Count]
    """batch sizes per worker that do not fit in memory"""
    exchanges: list[ExchangeTiming]
    """times of exchanges alone"""
    untimed: list[UntimedBatch] = field(default_factory=list)
    """batch sizes that the budget left no time for"""
    machine: HardwareFacts = HardwareFacts()  # noqa: RUF009 - immutable
    """hardware and software of the workers"""
    elapsed_seconds: NonNegativeNumber = 0.0
    """seconds that the last command spent on these timings, without the start of the workers"""

    def missing_batches(self, batches: list[int]) -> list[int]:
        """Return those of these batch sizes that were neither timed nor found too large."""
        known = {row.batch for row in self.rows} | set(self.too_large)
        return [batch for batch in batches if batch not in known]

    def untimed_batches(self, batches: list[int]) -> list[UntimedBatch]:
        """Return those of these batch sizes that there was no time for."""
        missing = set(self.missing_batches(batches))
        return [untimed for untimed in self.untimed if untimed.batch in missing]

    def least_seconds(self) -> float:
        """Return the fewest seconds that timing a further batch size takes; 0 where that is not known."""
        return min((untimed.timing_seconds for untimed in self.untimed), default=0.0)

    def merge(self, later: "WorkerCountTimings") -> "WorkerCountTimings":
        """Return these timings with those that a later command added."""
        return WorkerCountTimings(
            rows=[*self.rows, *later.rows],
            too_large=sorted({*self.too_large, *later.too_large}),
            untimed=later.untimed,
            exchanges=self.exchanges or later.exchanges,
            machine=later.machine,
            elapsed_seconds=later.elapsed_seconds,
        )


class TimingTables(NamedTuple):
    """Timings as tables with the columns of `StepTiming` and of `ExchangeTiming`."""

    steps: pd.DataFrame
    exchanges: pd.DataFrame
    machine: HardwareFacts
    started_at: float
    """Unix time at which the first measurement of this command started"""


def build_timing_tables(
    timings_by_workers: dict[int, WorkerCountTimings], batches_by_workers: dict[int, list[int]], started_at: float
) -> TimingTables:
    """Build the tables of the timings on all numbers of workers, with the rows of the requested batch sizes."""
    steps = [
        row
        for workers, timings in timings_by_workers.items()
        for row in timings.rows
        if row.batch in batches_by_workers[workers]
    ]
    exchanges = [exchange for timings in timings_by_workers.values() for exchange in timings.exchanges]
    return TimingTables(
        pd.DataFrame(steps, columns=[field.name for field in fields(StepTiming)]),
        pd.DataFrame(exchanges, columns=[field.name for field in fields(ExchangeTiming)]),
        [*timings_by_workers.values()][-1].machine,
        started_at,
    )


def load_timings(path: Path) -> WorkerCountTimings:
    """Read the timings that an earlier command left in a file; none if there is no file."""
    if not path.exists():
        return WorkerCountTimings(rows=[], too_large=[], exchanges=[])
    try:
        return decode_json_value(read_json(path), WorkerCountTimings, code="file-damaged", problem="invalid timings")
    except EquipoiseError as error:
        raise EquipoiseError(
            "file-damaged", f"{path} is damaged: remove it, and the same command times its batches again"
        ) from error


def max_repeat_error(rows: pd.DataFrame) -> float | None:
    """Return the largest relative difference of two timings of a setting; None if none was timed twice."""
    again = rows[rows["repeat"]].merge(rows[~rows["repeat"]], on=["nodes", "workers", "batch"])
    return float((again.seconds_x / again.seconds_y - 1).abs().max()) if len(again) else None
