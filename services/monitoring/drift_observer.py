"""A replica's eye on its own requests: once they are answered, adds up what charts need and reports it."""

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.sums import Sums
from equipoise.drift.monitor.monitor import Report
from equipoise.drift.monitor.report_ledger import Rows, Tick
from equipoise.drift.reference.profile import PREFIX, Known
from services.monitoring.capture_sampler import Keeper
from services.monitoring.metrics import Metrics
from services.serving.models import Batch, Pair

AT_ONCE = 32  # pictures that are looked at together: one by one they cost ten times as much
MOST_BYTES = 8 << 20  # of pictures that wait to be looked at
MOST_TICKS = 600  # kept while the monitor cannot be reached
SHARE = 0.01  # of the time, that may be spent on looking; where more is asked, not all pictures are looked at
CREDIT = 0.1  # seconds of looking that a quiet time saves up

log = logging.getLogger("equipoise.service")


class Link(Protocol):
    """How the monitor is reached."""

    async def take(self, report: Report) -> dict[str, Any]:
        """One report."""

    async def register(self, stream: str, arrays: dict[str, Any]) -> None:
        """One reference."""


@dataclass(eq=False)
class Waiting:
    """Pictures of a stream that nobody has looked at yet."""

    held: Known
    classes: list[str]
    parts: list[tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any]]] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    bytes: int = 0


class Observer:
    """Watches the models of one replica."""

    def __init__(self, metrics: Metrics, link: Link, seconds: float, keeper: Keeper | None = None) -> None:
        """`keeper` keeps some requests for labelling, if given."""
        self.keeper = keeper
        self.metrics = metrics
        self.link = link
        self.seconds = seconds
        self.name = uuid.uuid4().hex
        self.lock = threading.Lock()
        self.waiting: dict[str, Waiting] = {}
        self.rows: Rows = {}
        self.outbox: deque[Tick] = deque()
        self.number = self.confirmed = 0
        self.references: dict[str, Known | str] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.passed: dict[str, int] = {}
        """pictures that were answered and not looked at, by name"""
        self.credit, self.counted = CREDIT, time.monotonic()

    def batch(self, model: str, batch: Batch) -> None:
        """A version was given pictures."""
        self.metrics.batch(model, batch)
        stream = f"{model}/{batch.version.id}"
        held = batch.version.reference
        if not isinstance(held, Known):
            self.references.setdefault(stream, held)
            return
        with self.lock:
            self.references[stream] = held
            if not self._affordable():
                for source in batch.sources:
                    name = named(stream, source)
                    self.passed[name] = self.passed.get(name, 0) + 1
                return
            waits = self.waiting.setdefault(stream, Waiting(held, batch.version.bundle.classes))
            waits.parts.append((batch.pictures.numpy(), batch.logits.numpy(), batch.features.numpy()))
            waits.sources += batch.sources
            waits.bytes += batch.pictures.nbytes
            if len(waits.sources) >= AT_ONCE or waits.bytes >= MOST_BYTES:
                self._look(stream)

    def pair(self, model: str, pair: Pair) -> None:
        """Two versions were given the same."""
        self.metrics.pair(model, pair)

    def _affordable(self) -> bool:
        """Whether there is time left for looking."""
        now = time.monotonic()
        self.credit = min(self.credit + SHARE * (now - self.counted), CREDIT)
        self.counted = now
        return self.credit > 0

    def _look(self, stream: str) -> None:
        """Add up what waits, by source."""
        begun = time.thread_time()
        waits = self.waiting.pop(stream)
        base = waits.held.baseline
        pictures, logits, features = (np.concatenate(part) for part in zip(*waits.parts, strict=True))
        seen = base.seen(pictures, logits, features)
        for source in dict.fromkeys(waits.sources):
            some = [place for place, one in enumerate(waits.sources) if one == source]
            sums = base.sums(seen if len(some) == len(seen) else seen.some(some))
            self._add(named(stream, source), sums)
        if self.keeper:
            drifts = bool(self.states.get(stream, {}).get("drift"))
            self.keeper.choose(stream, drifts, waits.classes, pictures, logits / base.temperature, waits.sources)
        self.credit -= time.thread_time() - begun

    def _add(self, name: str, sums: Sums) -> None:
        self.rows[name] = self.rows[name] + sums if name in self.rows else sums

    async def report(self, leaves: bool = False) -> None:
        """Tell the monitor of the tick that ends now, and of those that it has not confirmed."""
        clock = round(time.time() // self.seconds * self.seconds * 1000)
        with self.lock:
            for stream in [*self.waiting]:
                self._look(stream)
            for name, count in self.passed.items():
                held = self.references[name.partition("\n")[0]]
                if isinstance(held, Known):
                    self._add(name, held.baseline.layout.passed(count))
            self.passed = {}
            rows, self.rows = self.rows, {}
        if rows:
            self.number += 1
            self.outbox.append(Tick(self.number, clock, rows))
            if len(self.outbox) > MOST_TICKS:  # the monitor will see that numbers are missing
                self.outbox.popleft()
        report = Report(self.name, clock, [*self.outbox], leaves, self.confirmed)
        said = await self.link.take(report)
        if said["unknown"]:
            for stream in said["unknown"]:
                await self.link.register(stream, arrays(self.references[stream]))
            said = await self.link.take(report)
        self.confirmed = max(self.confirmed, said["taken"])
        while self.outbox and self.outbox[0].number <= said["taken"]:
            self.outbox.popleft()
        self.states = said["states"]
        self.metrics.drift(self.states)

    async def run(self) -> None:
        """Report at every tick of the clock."""
        while True:
            await asyncio.sleep(self.seconds - time.time() % self.seconds)
            try:
                await self.report()
            except Exception:  # a monitor that is being restarted is there again soon
                log.warning("the monitor cannot be reached: %d ticks wait", len(self.outbox), exc_info=True)


def named(stream: str, source: str | None) -> str:
    """A stream, or that of a source."""
    return stream if source is None else f"{stream}\n{source}"


def arrays(held: Known | str) -> dict[str, Any]:
    """A reference as the monitor takes it."""
    if isinstance(held, str):
        return {f"{PREFIX}why not": np.array(held), "classes": np.array(0), "width": np.array(0)}
    layout, width = held.baseline.layout, held.baseline.waves.directions.shape[0]
    return held.arrays() | {"classes": np.array(layout.classes), "width": np.array(width)}
