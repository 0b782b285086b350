"""Sum the drift statistics of a replica's answered requests and report them to the drift monitor."""

import asyncio
import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch

from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.monitor.monitor import Report
from equipoise.drift.monitor.report_ledger import SumsByStream, Tick
from equipoise.drift.monitor.stream_key import StreamKey
from equipoise.drift.reference.profile import ReferenceProfile, ReferenceUnavailable, reference_to_arrays
from services.monitoring.batch_features import extract_batch_features, list_found_boxes, score_classes
from services.monitoring.capture_sampler import CaptureSampler
from services.monitoring.drift_client import DriftClient
from services.monitoring.drift_replies import StreamState
from services.monitoring.metrics import Metrics
from services.serving.inference import AnsweredBatch, BoxesBatch, ComparedOutputs, ComputedBatch
from services.settings import DEFAULT_DRIFT_TIME_FRACTION

EXAMPLES_PER_PASS = 32  # observed together, because one by one they cost ten times as much
MAX_PENDING_BYTES = 400 << 10  # of examples that are observed together, unless a single batch has more
MAX_OUTBOX_TICKS = 600  # kept while the monitor cannot be reached
MAX_CREDIT_SECONDS = 0.1  # of observing that an idle replica saves up

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class PendingExamples:
    """Answered images, rows or texts of a stream that have not been observed yet."""

    profile: ReferenceProfile
    batches: list[AnsweredBatch] = field(default_factory=list)

    @property
    def sources(self) -> list[str | None]:
        """Source of each example, as the client names it."""
        return [source for batch in self.batches for source in batch.sources]

    @property
    def is_full(self) -> bool:
        """Return whether these are enough examples for a pass."""
        num_examples = sum(len(batch.sources) for batch in self.batches)
        return num_examples >= EXAMPLES_PER_PASS or sum(batch.num_bytes for batch in self.batches) >= MAX_PENDING_BYTES


class DriftObserver:
    """Drift observer of one replica: sums statistics of answered requests by stream, within a fraction of the time.

    Requests are observed in passes, one at a time, in a thread of their own: answers do not wait for a pass.
    """

    def __init__(
        self,
        metrics: Metrics,
        drift_client: DriftClient,
        tick_seconds: float,
        capture_sampler: CaptureSampler | None = None,
        time_fraction: float = DEFAULT_DRIFT_TIME_FRACTION,
    ) -> None:
        """Create an observer without examples; `capture_sampler`, if given, keeps some images for labelling.

        Examples beyond `time_fraction` of the time are counted as skipped, not observed.
        """
        self.capture_sampler = capture_sampler
        self.time_fraction = time_fraction
        self.metrics = metrics
        self.drift_client = drift_client
        self.tick_seconds = tick_seconds
        self.replica_id = uuid.uuid4().hex
        self.executor = ThreadPoolExecutor(1, "observer")
        self.is_pass_running = False
        self.lock = threading.Lock()
        self.pending_examples: dict[StreamKey, PendingExamples] = {}
        self.stream_sums: SumsByStream = {}
        self.unconfirmed_ticks: deque[Tick] = deque()
        self.last_tick_number = self.confirmed_tick_number = 0
        self.references: dict[StreamKey, ReferenceProfile | ReferenceUnavailable] = {}
        self.stream_states: dict[StreamKey, StreamState] = {}
        self.skipped_examples: dict[StreamKey, int] = {}
        """examples that were answered and not observed, by stream"""
        self.credit_seconds, self.credit_updated_at = MAX_CREDIT_SECONDS, time.monotonic()

    def on_batch(self, model: str, batch: AnsweredBatch) -> None:
        """Count a batch, and queue its examples for observing if there is time for it."""
        self.metrics.on_batch(model, batch)
        stream = StreamKey(model, batch.version.id)
        reference = batch.version.reference
        if not isinstance(reference, ReferenceProfile):
            self.references.setdefault(stream, reference)
            return
        with self.lock:
            self.references[stream] = reference
            pending = self.pending_examples.get(stream)
            if not self._has_credit() or (pending is not None and pending.is_full):
                self._count_skipped(stream, batch.sources)
                return
            if pending is None:
                pending = self.pending_examples[stream] = PendingExamples(reference)
            pending.batches.append(batch)
            self._start_pass()

    def _count_skipped(self, stream: StreamKey, sources: list[str | None]) -> None:
        """Count examples that are not observed."""
        for source, count in Counter(sources).items():
            key = stream if source is None else stream._replace(source=source)
            self.skipped_examples[key] = self.skipped_examples.get(key, 0) + count

    def _start_pass(self) -> None:
        """Start the next pass if enough examples of a stream wait and no pass is running; the lock must be held."""
        stream = next((stream for stream, pending in self.pending_examples.items() if pending.is_full), None)
        if stream is not None and not self.is_pass_running:
            self.is_pass_running = True
            self.executor.submit(self._run_pass, stream, self.pending_examples.pop(stream))

    def _run_pass(self, stream: StreamKey, pending: PendingExamples) -> None:
        try:
            self._observe_examples(stream, pending)
        except Exception:  # later examples must be observed all the same
            logger.exception("cannot observe requests to %s", stream.model)
        with self.lock:
            self.is_pass_running = False
            self._start_pass()

    def on_comparison(self, model: str, outputs: ComparedOutputs) -> None:
        """Count how far two versions agree on the same images."""
        self.metrics.on_comparison(model, outputs)

    def _has_credit(self) -> bool:
        """Return whether there is time left for observing."""
        now = time.monotonic()
        gained_seconds = self.time_fraction * (now - self.credit_updated_at)
        self.credit_seconds = min(self.credit_seconds + gained_seconds, MAX_CREDIT_SECONDS)
        self.credit_updated_at = now
        return self.credit_seconds > 0

    def _observe_examples(self, stream: StreamKey, pending: PendingExamples) -> None:
        """Sum the statistics of a stream's examples by source, and offer some of them, if images, for labelling."""
        started_at = time.thread_time()
        baseline, sources = pending.profile.baseline, pending.sources
        features = extract_batch_features(pending.profile, pending.batches)
        sums_by_source = {}
        for source in dict.fromkeys(sources):
            indices = [index for index, example_source in enumerate(sources) if example_source == source]
            selected = features if len(indices) == len(features) else features.select(indices)
            sums_by_source[source] = baseline.sum_features(selected)
        if self.capture_sampler:
            self._offer_images(self.capture_sampler, stream, pending.batches, baseline.temperature)
        with self.lock:
            for source, sums in sums_by_source.items():
                self._add_sums(stream._replace(source=source), sums)
            self.credit_seconds -= time.thread_time() - started_at

    def _offer_images(
        self, sampler: CaptureSampler, stream: StreamKey, batches: Sequence[AnsweredBatch], temperature: float
    ) -> None:
        """Offer the images of batches for labelling; there are none of rows and texts."""
        images = [batch for batch in batches if isinstance(batch, ComputedBatch | BoxesBatch)]
        if not images:
            return
        state = self.stream_states.get(stream)
        detected = [batch for batch in images if isinstance(batch, BoxesBatch)]
        classified = [batch for batch in images if isinstance(batch, ComputedBatch)]
        logits = [batch.logits.numpy() / temperature for batch in classified]
        logits += [score_classes(batch) for batch in detected]
        sampler.offer_samples(
            stream,
            state.alarm_seconds if state and state.drift else None,
            images[0].version.bundle.classes,
            torch.cat([batch.images for batch in images]).numpy(),
            np.concatenate(logits),
            [source for batch in images for source in batch.sources],
            [encoded for batch in images for encoded in batch.encoded_images],
            [boxes for batch in detected for boxes in list_found_boxes(batch)] or None,
        )

    def _observe_all_pending(self) -> None:
        """Observe all examples that wait, however few; those of a pass that is running are in the next report."""
        with self.lock:
            pending_examples, self.pending_examples = self.pending_examples, {}
        for stream, pending in pending_examples.items():
            self._observe_examples(stream, pending)

    def _add_sums(self, stream: StreamKey, sums: FixedPointSums) -> None:
        self.stream_sums[stream] = self.stream_sums[stream] + sums if stream in self.stream_sums else sums

    async def send_report(self, leaving: bool = False) -> None:
        """Report the tick that ends now to the monitor, with earlier ticks that it has not confirmed."""
        clock = round(time.time() // self.tick_seconds * self.tick_seconds * 1000)
        self._observe_all_pending()  # not in the thread of requests either
        with self.lock:
            for key, count in self.skipped_examples.items():
                reference = self.references[key.all_sources]
                if isinstance(reference, ReferenceProfile):
                    self._add_sums(key, reference.baseline.layout.pack_unobserved(count))
            self.skipped_examples = {}
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
