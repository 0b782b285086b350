"""Memory of a worker over its batch, by part, as a sweep with a limit of it predicts and measures it: memory.json."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import pandas as pd

from equipoise.number_bounds import Count, PositiveNumber
from equipoise.planning.document import PlanEntry
from equipoise.planning.memory.memory_at_batch import MemoryAtBatch, describe_memory
from equipoise.planning.memory.memory_verdicts import WHOLE_MODEL_TEXT
from equipoise.planning.sharding.worker_limit import WorkerLimit
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

MEMORY_FILE = "memory.json"


@dataclass(frozen=True, kw_only=True)
class WayMemory:
    """Memory of a worker with one way of exchange."""

    exchange: str
    """way of exchange; empty for exact sums in every step, of workers with the whole model"""
    workers: Count
    """number of workers"""
    rows: tuple[MemoryAtBatch, ...]
    """memory by batch, the smallest first"""

    @property
    def title(self) -> str:
        """Name of what each worker holds."""
        return self.exchange or WHOLE_MODEL_TEXT


@dataclass(frozen=True, kw_only=True)
class MemoryReport:
    """Memory of a worker with whole models, and with the plan's way of exchange where that is another."""

    schema: Literal[1] = 1
    """version of the format"""
    limit_bytes: PositiveNumber
    """most bytes of a worker"""
    ways: tuple[WayMemory, ...]
    """whole models first"""

    def to_json(self) -> JsonObject:
        """Return the contents of memory.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, contents: object) -> "MemoryReport":
        """Decode the contents of memory.json; refuse others."""
        return decode_json_value(contents, cls, code="file-damaged", problem="the memory of a sweep is damaged")


def build_memory_report(limit: WorkerLimit, plan: PlanEntry | None, steps: pd.DataFrame) -> MemoryReport:
    """Return the memory of a worker at the timed batches of a plan's workers, or of the most workers without a plan."""
    workers = plan.workers if plan else int(steps.workers.max())
    names = dict.fromkeys(["", plan.exchange if plan and plan.sharding != "none" else ""])
    batches = sorted({*steps.batch[steps.workers == workers].astype(int), *([plan.batch] if plan else [])})
    ways = [
        WayMemory(exchange=name, workers=workers, rows=tuple(list_rows(limit, name, workers, batches, steps)))
        for name in names
    ]
    return MemoryReport(limit_bytes=limit.limit_bytes, ways=tuple(ways))


def list_rows(
    limit: WorkerLimit, name: str, workers: int, batches: Iterable[int], steps: pd.DataFrame
) -> Iterable[MemoryAtBatch]:
    """Yield the memory of a worker at each batch; `steps` are with exact sums of whole models."""
    for batch in batches:
        measured = None if name else find_measured_bytes(steps, workers, batch)
        yield describe_memory(batch, limit.predict_parts(name, workers, batch), measured)


def find_measured_bytes(steps: pd.DataFrame, workers: int, batch: int) -> float | None:
    """Return the largest peak that was measured at a setting; None if none was."""
    if "peak_bytes" not in steps:
        return None
    peaks = pd.to_numeric(steps.peak_bytes[(steps.workers == workers) & (steps.batch == batch)], errors="coerce")
    return float(peaks.max()) if peaks.notna().any() else None
