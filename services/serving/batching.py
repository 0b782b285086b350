"""Dynamic batching of the requests for one model.

Work-conserving: as soon as nothing is being computed, all waiting requests up to a full batch are taken; no request
waits for a batch to fill. Short batches are computed on the event loop, because handing them to a thread and back costs
as much again. Longer ones go to a thread, so that the loop can answer health checks and reject requests meanwhile.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from services.http.errors import queue_is_full, turn_came_too_late

logger = logging.getLogger(__name__)

RequestOutcome = tuple["QueuedRequest", Any]

INLINE_SECONDS = 0.002  # of computing, for which the event loop may be blocked


@dataclass
class BatchTimeEstimate:
    """Running estimate of the time that a batch takes, from the last batches."""

    mean_size: float = 1.0
    mean_seconds: float = INLINE_SECONDS  # so the first batch goes to the thread only if it holds several requests

    def add_batch(self, size: int, seconds: float) -> None:
        """Update the moving averages with one computed batch."""
        self.mean_size += 0.2 * (size - self.mean_size)
        self.mean_seconds += 0.2 * (seconds - self.mean_seconds)

    def predict_seconds(self, size: int) -> float:
        """Return the predicted seconds for a batch; they grow with its size once it is larger than the last ones."""
        return self.mean_seconds * max(1.0, size / self.mean_size)


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """Request in the queue, with the future that its client awaits."""

    request: Any
    future: "asyncio.Future[Any]"
    deadline: float
    """time of the monotonic clock, in seconds, after which the request is rejected"""


class DynamicBatcher:
    """Queue of one model that computes waiting requests in batches."""

    def __init__(
        self,
        compute_batch: Callable[[Sequence[Any]], Sequence[Any]],
        on_batch_answered: Callable[[], None],
        max_batch: int,
        max_waiting: int,
        name: str,
        loop: asyncio.AbstractEventLoop,
        may_run_inline: Callable[[Any], bool] = lambda _: True,
    ) -> None:
        """Create an empty queue.

        `compute_batch` returns an answer for each request, or an exception that is raised where the request is awaited.
        `on_batch_answered` is called after the answers of a batch were delivered, never while another is computed.
        Batches with a request for which `may_run_inline` is false go to the thread.
        """
        self.compute_batch = compute_batch
        self.on_batch_answered = on_batch_answered
        self.max_batch = max_batch
        self.max_waiting = max_waiting
        self.may_run_inline = may_run_inline
        self.num_waiting = 0
        self.busy_seconds = 0.0
        """seconds spent on batches and their callbacks"""
        self.loop = loop
        self.queued_requests: list[QueuedRequest] = []
        self.is_batch_scheduled = False
        """whether the event loop is about to take the next batch"""
        self.is_thread_computing = False
        self.time_estimate = BatchTimeEstimate()
        self.thread_queue: queue.SimpleQueue[list[QueuedRequest] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run_thread, name=f"turns-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread that computes long batches."""
        self.thread.start()

    async def submit(self, request: Any, timeout_seconds: float) -> Any:
        """Return the answer to one request; raise RequestRejected if the queue is full or the timeout passes first."""
        self.reject_if_full()
        queued = QueuedRequest(request, self.loop.create_future(), time.monotonic() + timeout_seconds)
        self.num_waiting += 1
        self.queued_requests.append(queued)
        self._schedule_batch()
        try:
            return await queued.future
        finally:
            self.num_waiting -= 1

    def reject_if_full(self) -> None:
        """Raise RequestRejected if as many requests wait as may."""
        if self.num_waiting >= self.max_waiting:
            raise queue_is_full(self.max_waiting)

    def close(self) -> None:
        """Stop the thread after the batches that it was given."""
        self.thread_queue.put(None)

    def _schedule_batch(self) -> None:
        """Start the next batch soon, after all requests that were read together have joined the queue."""
        if not self.is_batch_scheduled:
            self.is_batch_scheduled = True
            self.loop.call_soon(self._start_batch)

    def _start_batch(self) -> None:
        self.is_batch_scheduled = False
        if self.is_thread_computing or not self.queued_requests:
            return
        batch, self.queued_requests = self.queued_requests[: self.max_batch], self.queued_requests[self.max_batch :]
        if self.time_estimate.predict_seconds(len(batch)) > INLINE_SECONDS or not all(
            self.may_run_inline(queued.request) for queued in batch
        ):
            self.is_thread_computing = True
            self.thread_queue.put(batch)
            return
        started_at = time.monotonic()
        deliver_outcomes(self._compute_timed(batch))
        self._run_batch_callback()
        self.busy_seconds += time.monotonic() - started_at
        if self.queued_requests:
            self._schedule_batch()

    def _run_thread(self) -> None:
        while (batch := self.thread_queue.get()) is not None:
            started_at = time.monotonic()
            try:
                self.loop.call_soon_threadsafe(deliver_outcomes, self._compute_timed(batch))
                self._run_batch_callback()
                self.busy_seconds += time.monotonic() - started_at
                self.loop.call_soon_threadsafe(self._on_thread_idle)
            except RuntimeError:  # the loop is closed, so no request is awaited any more
                return

    def _on_thread_idle(self) -> None:
        """Mark the thread as free, and start the next batch."""
        self.is_thread_computing = False
        self._start_batch()

    def _compute_timed(self, queued_requests: list[QueuedRequest]) -> list[RequestOutcome]:
        """Return the outcome of each request, and add the CPU time that it took to the estimate."""
        started_at = time.thread_time()
        outcomes = self._compute_outcomes(queued_requests)
        self.time_estimate.add_batch(len(queued_requests), time.thread_time() - started_at)
        return outcomes

    def _run_batch_callback(self) -> None:
        """Call `on_batch_answered`; log an exception from it."""
        try:
            self.on_batch_answered()
        except Exception:  # the next requests must be answered all the same
            logger.exception("the callback after a batch failed")

    def _compute_outcomes(self, queued_requests: list[QueuedRequest]) -> list[RequestOutcome]:
        """Return the outcome of each request: its answer, an error, or a rejection if it waited too long."""
        now = time.monotonic()
        rejection = turn_came_too_late()
        waiting = [queued for queued in queued_requests if queued.deadline >= now and not queued.future.cancelled()]
        outcomes: list[RequestOutcome] = [(queued, rejection) for queued in queued_requests if queued.deadline < now]
        if waiting:
            outcomes += zip(waiting, self._compute_or_split([queued.request for queued in waiting]), strict=True)
        return outcomes

    def _compute_or_split(self, requests: list[Any]) -> Sequence[Any]:
        """Compute a batch; if that fails, compute each request alone, so that a bad one does not fail the others."""
        try:
            return self.compute_batch(requests)
        except Exception as error:
            return [error] if len(requests) == 1 else [self._compute_or_split([request])[0] for request in requests]


def deliver_outcomes(outcomes: list[RequestOutcome]) -> None:
    """Set the outcomes on the futures that clients await."""
    for queued, outcome in outcomes:
        if queued.future.done():
            continue
        if isinstance(outcome, BaseException):
            queued.future.set_exception(outcome)
        else:
            queued.future.set_result(outcome)


def pack_batches(indices: list[int], image_counts: list[int], max_images: int) -> list[list[int]]:
    """Group consecutive requests into batches of at most `max_images` images; a larger request is a batch of its own.

    Return the indices of the requests of each batch.
    """
    batches: list[list[int]] = []
    held = max_images
    for index, count in zip(indices, image_counts, strict=True):
        if held + count > max_images:
            batches.append([])
            held = 0
        batches[-1].append(index)
        held += count
    return batches
