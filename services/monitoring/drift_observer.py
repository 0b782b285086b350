"""Sum the drift statistics of a replica's answered requests and report them to the drift monitor."""

import asyncio
import logging
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.monitor.monitor import Report
from equipoise.drift.monitor.report_ledger import SumsByStream, Tick
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.drift.reference.profile import ReferenceProfile, ReferenceUnavailable, reference_to_arrays
from services.monitoring.capture_sampler import CaptureSampler
from services.monitoring.drift_client import DriftClient
from services.monitoring.drift_replies import StreamState
from services.monitoring.metrics import Metrics
from services.serving.models import ComparedOutputs, ComputedBatch

IMAGES_PER_PASS = 32  # observed together, because one by one they cost ten times as much
MAX_PENDING_BYTES = 8 << 20  # of images that wait to be observed
MAX_OUTBOX_TICKS = 600  # kept while the monitor cannot be reached
MAX_OBSERVER_TIME_FRACTION = 0.01  # of the time; images beyond it are counted as skipped, not observed
MAX_CREDIT_SECONDS = 0.1  # of observing that an idle replica saves up

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class PendingImages:
    """Answered images of a stream that have not been observed yet."""

    profile: ReferenceProfile
    classes: list[str]
    batches: list[tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any]]] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    num_bytes: int = 0


class DriftObserver:
    """Drift observer of one replica: sums statistics of answered images by stream, within 1 % of the time."""

    def __init__(
        self,
        metrics: Metrics,
        drift_client: DriftClient,
        tick_seconds: float,
        capture_sampler: CaptureSampler | None = None,
    ) -> None:
        """Create an observer without images; `capture_sampler`, if given, keeps some images for labelling."""
        self.capture_sampler = capture_sampler
        self.metrics = metrics
        self.drift_client = drift_client
        self.tick_seconds = tick_seconds
        self.replica_id = uuid.uuid4().hex
        self.lock = threading.Lock()
        self.pending_images: dict[StreamKey, PendingImages] = {}
        self.stream_sums: SumsByStream = {}
        self.unconfirmed_ticks: deque[Tick] = deque()
        self.last_tick_number = self.confirmed_tick_number = 0
        self.references: dict[StreamKey, ReferenceProfile | ReferenceUnavailable] = {}
        self.stream_states: dict[StreamKey, StreamState] = {}
        self.skipped_images: dict[StreamKey, int] = {}
        """images that were answered and not observed, by stream"""
        self.credit_seconds, self.credit_updated_at = MAX_CREDIT_SECONDS, time.monotonic()

    def on_batch(self, model: str, batch: ComputedBatch) -> None:
        """Count a batch, and queue its images for observing if there is time for it."""
        self.metrics.on_batch(model, batch)
        stream = StreamKey(model, batch.version.id)
        reference = batch.version.reference
        if not isinstance(reference, ReferenceProfile):
            self.references.setdefault(stream, reference)
            return
        with self.lock:
            self.references[stream] = reference
            if not self._has_credit():
                for source in batch.sources:
                    key = stream._replace(source=source)
                    self.skipped_images[key] = self.skipped_images.get(key, 0) + 1
                return
            pending = self.pending_images.setdefault(stream, PendingImages(reference, batch.version.bundle.classes))
            pending.batches.append((batch.images.numpy(), batch.logits.numpy(), batch.features.numpy()))
            pending.sources += batch.sources
            pending.num_bytes += batch.images.nbytes
            if len(pending.sources) >= IMAGES_PER_PASS or pending.num_bytes >= MAX_PENDING_BYTES:
                self._observe_pending(stream)

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Count how far two versions agree on the same images."""
        self.metrics.on_comparison(model, outputs)

    def _has_credit(self) -> bool:
        """Return whether there is time left for observing."""
        now = time.monotonic()
        self.credit_seconds = min(
            self.credit_seconds + MAX_OBSERVER_TIME_FRACTION * (now - self.credit_updated_at), MAX_CREDIT_SECONDS
        )
        self.credit_updated_at = now
        return self.credit_seconds > 0

    def _observe_pending(self, stream: StreamKey) -> None:
        """Sum the statistics of a stream's pending images by source, and offer some to the capture store."""
        started_at = time.thread_time()
        pending = self.pending_images.pop(stream)
        baseline = pending.profile.baseline
        images, logits, features = (np.concatenate(part) for part in zip(*pending.batches, strict=True))
        statistics = baseline.extract_features(images, logits, features)
        for source in dict.fromkeys(pending.sources):
            indices = [index for index, image_source in enumerate(pending.sources) if image_source == source]
            selected = statistics if len(indices) == len(statistics) else statistics.select(indices)
            sums = baseline.sum_features(selected)
            self._add_sums(stream._replace(source=source), sums)
        if self.capture_sampler:
            is_drifting = stream in self.stream_states and self.stream_states[stream].drift
            self.capture_sampler.offer_samples(
                stream, is_drifting, pending.classes, images, logits / baseline.temperature, pending.sources
            )
        self.credit_seconds -= time.thread_time() - started_at

    def _add_sums(self, stream: StreamKey, sums: FixedPointSums) -> None:
        self.stream_sums[stream] = self.stream_sums[stream] + sums if stream in self.stream_sums else sums

    async def send_report(self, leaving: bool = False) -> None:
        """Report the tick that ends now to the monitor, with earlier ticks that it has not confirmed."""
        clock = round(time.time() // self.tick_seconds * self.tick_seconds * 1000)
        with self.lock:
            for stream in [*self.pending_images]:
                self._observe_pending(stream)
            for key, count in self.skipped_images.items():
                reference = self.references[key.all_sources]
                if isinstance(reference, ReferenceProfile):
                    self._add_sums(key, reference.baseline.layout.pack_unobserved(count))
            self.skipped_images = {}
            rows, self.stream_sums = self.stream_sums, {}
        if rows:
            self.last_tick_number += 1
            self.unconfirmed_ticks.append(Tick(self.last_tick_number, clock, rows))
            if len(self.unconfirmed_ticks) > MAX_OUTBOX_TICKS:  # the monitor notices the gap in the tick numbers
                self.unconfirmed_ticks.popleft()
        report = Report(self.replica_id, clock, [*self.unconfirmed_ticks], leaving, self.confirmed_tick_number)
        reply = await self.drift_client.submit_report(report)
        if reply.unknown:
            for stream in reply.unknown:
                await self.drift_client.register_reference(stream, reference_to_arrays(self.references[stream]))
            reply = await self.drift_client.submit_report(report)
        self.confirmed_tick_number = max(self.confirmed_tick_number, reply.taken)
        while self.unconfirmed_ticks and self.unconfirmed_ticks[0].number <= reply.taken:
            self.unconfirmed_ticks.popleft()
        self.stream_states = reply.states
        self.metrics.set_drift_gauges(self.stream_states)

    async def report_every_tick(self) -> None:
        """Send a report at every tick of the clock, until cancelled."""
        while True:
            await asyncio.sleep(self.tick_seconds - time.time() % self.tick_seconds)
            try:
                await self.send_report()
            except Exception:  # a monitor that restarts is reachable again soon
                logger.warning(
                    "cannot report to the drift monitor: %d ticks are queued",
                    len(self.unconfirmed_ticks),
                    exc_info=True,
                )
