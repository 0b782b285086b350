"""Sum the drift statistics of a replica's answered requests and report them to the drift monitor."""

import asyncio
import logging
import threading
import time
import uuid
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
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
from services.serving.inference import AnsweredBatch, ComparedOutputs, ComputedBatch

IMAGES_PER_PASS = 32  # observed together, because one by one they cost ten times as much
MAX_PENDING_BYTES = 400 << 10  # of images that are observed together, unless a single batch has more
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
    """source of each image, as the client names it"""
    encoded_images: list[bytes | None] = field(default_factory=list)
    """images as the clients sent them; None for one that came as a tensor"""
    num_bytes: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether these are enough images for a pass."""
        return len(self.sources) >= IMAGES_PER_PASS or self.num_bytes >= MAX_PENDING_BYTES

    def add_batch(self, batch: ComputedBatch) -> None:
        """Add the images of a batch with their outputs."""
        self.batches.append((batch.images.numpy(), batch.logits.numpy(), batch.features.numpy()))
        self.sources += batch.sources
        self.encoded_images += batch.encoded_images
        self.num_bytes += batch.images.nbytes


class DriftObserver:
    """Drift observer of one replica: sums statistics of answered images by stream, within 1 % of the time.

    Images are observed in passes, one at a time, in a thread of their own: requests do not wait for a pass.
    """

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
        self.executor = ThreadPoolExecutor(1, "observer")
        self.is_pass_running = False
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

    def on_batch(self, model: str, batch: AnsweredBatch) -> None:
        """Count a batch, and queue its images for observing if there is time for it."""
        self.metrics.on_batch(model, batch)
        stream = StreamKey(model, batch.version.id)
        reference = batch.version.reference
        if not isinstance(reference, ReferenceProfile) or not isinstance(batch, ComputedBatch):
            self.references.setdefault(stream, reference)
            return
        with self.lock:
            self.references[stream] = reference
            pending = self.pending_images.get(stream)
            if not self._has_credit() or (pending is not None and pending.is_full):
                self._count_skipped(stream, batch.sources)
                return
            if pending is None:
                pending = self.pending_images[stream] = PendingImages(reference, batch.version.bundle.classes)
            pending.add_batch(batch)
            self._start_pass()

    def _count_skipped(self, stream: StreamKey, sources: list[str | None]) -> None:
        """Count images that are not observed."""
        for source, count in Counter(sources).items():
            key = stream if source is None else stream._replace(source=source)
            self.skipped_images[key] = self.skipped_images.get(key, 0) + count

    def _start_pass(self) -> None:
        """Start the next pass if enough images of a stream wait and no pass is running; the lock must be held."""
        stream = next((stream for stream, pending in self.pending_images.items() if pending.is_full), None)
        if stream is not None and not self.is_pass_running:
            self.is_pass_running = True
            self.executor.submit(self._run_pass, stream, self.pending_images.pop(stream))

    def _run_pass(self, stream: StreamKey, pending: PendingImages) -> None:
        try:
            self._observe_images(stream, pending)
        except Exception:  # later images must be observed all the same
            logger.exception("cannot observe images of %s", stream.model)
        with self.lock:
            self.is_pass_running = False
            self._start_pass()

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

    def _observe_images(self, stream: StreamKey, pending: PendingImages) -> None:
        """Sum the statistics of a stream's images by source, and offer some to the capture store."""
        started_at = time.thread_time()
        baseline = pending.profile.baseline
        images, logits, features = (np.concatenate(part) for part in zip(*pending.batches, strict=True))
        statistics = baseline.extract_features(images, logits, features)
        sums_by_source = {}
        for source in dict.fromkeys(pending.sources):
            indices = [index for index, image_source in enumerate(pending.sources) if image_source == source]
            selected = statistics if len(indices) == len(statistics) else statistics.select(indices)
            sums_by_source[source] = baseline.sum_features(selected)
        if self.capture_sampler:
            state = self.stream_states.get(stream)
            alarm_seconds = state.alarm_seconds if state and state.drift else None
            self.capture_sampler.offer_samples(
                stream,
                alarm_seconds,
                pending.classes,
                images,
                logits / baseline.temperature,
                pending.sources,
                pending.encoded_images,
            )
        with self.lock:
            for source, sums in sums_by_source.items():
                self._add_sums(stream._replace(source=source), sums)
            self.credit_seconds -= time.thread_time() - started_at

    def _observe_all_pending(self) -> None:
        """Observe all images that wait, however few; those of a pass that is running are in the next report."""
        with self.lock:
            pending_images, self.pending_images = self.pending_images, {}
        for stream, pending in pending_images.items():
            self._observe_images(stream, pending)

    def _add_sums(self, stream: StreamKey, sums: FixedPointSums) -> None:
        self.stream_sums[stream] = self.stream_sums[stream] + sums if stream in self.stream_sums else sums

    async def send_report(self, leaving: bool = False) -> None:
        """Report the tick that ends now to the monitor, with earlier ticks that it has not confirmed."""
        clock = round(time.time() // self.tick_seconds * self.tick_seconds * 1000)
        self._observe_all_pending()  # not in the thread of requests either
        with self.lock:
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
