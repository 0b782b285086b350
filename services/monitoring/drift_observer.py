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

from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.monitor.monitor import Report
from equipoise.drift.monitor.report_ledger import SumsByStream, Tick
from equipoise.drift.reference.profile import ARRAY_PREFIX, ReferenceProfile
from services.monitoring.capture_sampler import CaptureSampler
from services.monitoring.metrics import Metrics
from services.serving.models import ComparedOutputs, ComputedBatch

IMAGES_PER_PASS = 32  # pictures that are looked at together: one by one they cost ten times as much
MAX_PENDING_BYTES = 8 << 20  # of pictures that wait to be looked at
MAX_OUTBOX_TICKS = 600  # kept while the monitor cannot be reached
MAX_OBSERVER_TIME_FRACTION = (
    0.01  # of the time, that may be spent on looking; where more is asked, not all pictures are looked at
)
MAX_CREDIT_SECONDS = 0.1  # seconds of looking that a quiet time saves up

logger = logging.getLogger("equipoise.service")


class DriftClientProtocol(Protocol):
    """How the monitor is reached."""

    async def submit_report(self, report: Report) -> dict[str, Any]:
        """One report."""

    async def register_reference(self, stream: str, arrays: dict[str, Any]) -> None:
        """One reference."""


@dataclass(eq=False)
class PendingImages:
    """Pictures of a stream that nobody has looked at yet."""

    profile: ReferenceProfile
    classes: list[str]
    batches: list[tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any]]] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    num_bytes: int = 0


class DriftObserver:
    """Watches the models of one replica."""

    def __init__(
        self,
        metrics: Metrics,
        drift_client: DriftClientProtocol,
        tick_seconds: float,
        capture_sampler: CaptureSampler | None = None,
    ) -> None:
        """`keeper` keeps some requests for labelling, if given."""
        self.capture_sampler = capture_sampler
        self.metrics = metrics
        self.drift_client = drift_client
        self.tick_seconds = tick_seconds
        self.replica_id = uuid.uuid4().hex
        self.lock = threading.Lock()
        self.pending_images: dict[str, PendingImages] = {}
        self.stream_sums: SumsByStream = {}
        self.unconfirmed_ticks: deque[Tick] = deque()
        self.last_tick_number = self.confirmed_tick_number = 0
        self.references: dict[str, ReferenceProfile | str] = {}
        self.stream_states: dict[str, dict[str, Any]] = {}
        self.skipped_images: dict[str, int] = {}
        """pictures that were answered and not looked at, by name"""
        self.credit_seconds, self.credit_updated_at = MAX_CREDIT_SECONDS, time.monotonic()

    def on_batch(self, model: str, batch: ComputedBatch) -> None:
        """A version was given pictures."""
        self.metrics.on_batch(model, batch)
        stream = f"{model}/{batch.version.id}"
        held = batch.version.reference
        if not isinstance(held, ReferenceProfile):
            self.references.setdefault(stream, held)
            return
        with self.lock:
            self.references[stream] = held
            if not self._has_credit():
                for source in batch.sources:
                    name = source_stream_name(stream, source)
                    self.skipped_images[name] = self.skipped_images.get(name, 0) + 1
                return
            waits = self.pending_images.setdefault(stream, PendingImages(held, batch.version.bundle.classes))
            waits.batches.append((batch.images.numpy(), batch.logits.numpy(), batch.features.numpy()))
            waits.sources += batch.sources
            waits.num_bytes += batch.images.nbytes
            if len(waits.sources) >= IMAGES_PER_PASS or waits.num_bytes >= MAX_PENDING_BYTES:
                self._observe_pending(stream)

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Two versions were given the same."""
        self.metrics.on_comparison(model, outputs)

    def _has_credit(self) -> bool:
        """Whether there is time left for looking."""
        now = time.monotonic()
        self.credit_seconds = min(
            self.credit_seconds + MAX_OBSERVER_TIME_FRACTION * (now - self.credit_updated_at), MAX_CREDIT_SECONDS
        )
        self.credit_updated_at = now
        return self.credit_seconds > 0

    def _observe_pending(self, stream: str) -> None:
        """Add up what waits, by source."""
        begun = time.thread_time()
        waits = self.pending_images.pop(stream)
        base = waits.profile.baseline
        pictures, logits, features = (np.concatenate(part) for part in zip(*waits.batches, strict=True))
        seen = base.extract_features(pictures, logits, features)
        for source in dict.fromkeys(waits.sources):
            some = [place for place, one in enumerate(waits.sources) if one == source]
            sums = base.sum_features(seen if len(some) == len(seen) else seen.select(some))
            self._add_sums(source_stream_name(stream, source), sums)
        if self.capture_sampler:
            drifts = bool(self.stream_states.get(stream, {}).get("drift"))
            self.capture_sampler.offer_samples(
                stream, drifts, waits.classes, pictures, logits / base.temperature, waits.sources
            )
        self.credit_seconds -= time.thread_time() - begun

    def _add_sums(self, stream: str, sums: FixedPointSums) -> None:
        self.stream_sums[stream] = self.stream_sums[stream] + sums if stream in self.stream_sums else sums

    async def send_report(self, leaving: bool = False) -> None:
        """Tell the monitor of the tick that ends now, and of those that it has not confirmed."""
        clock = round(time.time() // self.tick_seconds * self.tick_seconds * 1000)
        with self.lock:
            for stream in [*self.pending_images]:
                self._observe_pending(stream)
            for name, count in self.skipped_images.items():
                held = self.references[name.partition("\n")[0]]
                if isinstance(held, ReferenceProfile):
                    self._add_sums(name, held.baseline.layout.pack_unobserved(count))
            self.skipped_images = {}
            rows, self.stream_sums = self.stream_sums, {}
        if rows:
            self.last_tick_number += 1
            self.unconfirmed_ticks.append(Tick(self.last_tick_number, clock, rows))
            if len(self.unconfirmed_ticks) > MAX_OUTBOX_TICKS:  # the monitor will see that numbers are missing
                self.unconfirmed_ticks.popleft()
        report = Report(self.replica_id, clock, [*self.unconfirmed_ticks], leaving, self.confirmed_tick_number)
        said = await self.drift_client.submit_report(report)
        if said["unknown"]:
            for stream in said["unknown"]:
                await self.drift_client.register_reference(stream, reference_to_arrays(self.references[stream]))
            said = await self.drift_client.submit_report(report)
        self.confirmed_tick_number = max(self.confirmed_tick_number, said["taken"])
        while self.unconfirmed_ticks and self.unconfirmed_ticks[0].number <= said["taken"]:
            self.unconfirmed_ticks.popleft()
        self.stream_states = said["states"]
        self.metrics.set_drift_gauges(self.stream_states)

    async def report_every_tick(self) -> None:
        """Report at every tick of the clock."""
        while True:
            await asyncio.sleep(self.tick_seconds - time.time() % self.tick_seconds)
            try:
                await self.send_report()
            except Exception:  # a monitor that is being restarted is there again soon
                logger.warning(
                    "the monitor cannot be reached: %d ticks wait", len(self.unconfirmed_ticks), exc_info=True
                )


def source_stream_name(stream: str, source: str | None) -> str:
    """A stream, or that of a source."""
    return stream if source is None else f"{stream}\n{source}"


def reference_to_arrays(reference: ReferenceProfile | str) -> dict[str, Any]:
    """A reference as the monitor takes it."""
    if isinstance(reference, str):
        return {f"{ARRAY_PREFIX}why not": np.array(reference), "classes": np.array(0), "width": np.array(0)}
    layout, width = reference.baseline.layout, reference.baseline.random_fourier.directions.shape[0]
    return reference.to_arrays() | {"classes": np.array(layout.class_count), "width": np.array(width)}
