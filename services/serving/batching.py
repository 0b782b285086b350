"""Dynamic batching of the requests for one model.

Work-conserving: as soon as nothing is being computed, waiting requests are taken; no request waits for a batch to fill.
Batches of at most two milliseconds are computed on the event loop, because handing them to a thread and back costs as
much again; a request of several stages that each take less, too, with other work of the loop in between, if no other
waits. All else goes to a thread, so that the loop can answer health checks and reject requests meanwhile.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from services.http.errors import queue_is_full, turn_came_too_late
from services.serving.batch_times import INLINE_SECONDS, BatchTimes, StageTimes

logger = logging.getLogger(__name__)

RequestOutcome = tuple["QueuedRequest", Any]
Stage = Callable[[Any], Any]
"""does a part of the work on a request, and returns the request for the next stage"""


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
        list_first_stages: Callable[[Any], Sequence[Stage]] = lambda _: [lambda request: request],
    ) -> None:
        """Create an empty queue.

        `compute_batch` returns an answer for each request, or an exception that is raised where the request is awaited.
        `on_batch_answered` is called after the answers of a batch were delivered, never while another is computed.
        Batches with a request for which `may_run_inline` is false go to the thread. `list_first_stages` returns the
        stages of the work on a request before the last one, `compute_batch`.
        """
        self.compute_batch = compute_batch
        self.on_batch_answered = on_batch_answered
        self.max_batch = max_batch
        self.max_waiting = max_waiting
        self.may_run_inline = may_run_inline
        self.list_first_stages = list_first_stages
        self.num_waiting = 0
        self.busy_seconds = 0.0
        """seconds spent on batches and their callbacks"""
        self.loop = loop
        self.queued_requests: list[QueuedRequest] = []
        self.is_batch_scheduled = False
        """whether the event loop is about to take the next batch"""
        self.is_thread_computing = False
        self.batch_times = BatchTimes()
        self.stage_times = StageTimes()
        self.thread_queue: queue.SimpleQueue[list[QueuedRequest] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run_thread, name=f"turns-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread that computes long batches."""
        self.thread.start()

    async def submit(self, request: Any, timeout_seconds: float, is_alone: bool = False) -> Any:
        """Return the answer to one request; raise RequestRejected if the queue is full or the timeout passes first.

        A request that `is_alone`, because no other is being answered, is computed at once if it is short.
        """
        self.reject_if_full()
        if is_alone and self._is_idle() and self.may_run_inline(request):
            if self.batch_times.choose_inline_size(1):
                return self._compute_now(request)
            stages = self.list_first_stages(request)
            if self._may_compute_in_stages(len(stages) + 1):
                return await self._compute_in_stages(request, stages)
        queued = QueuedRequest(request, self.loop.create_future(), time.monotonic() + timeout_seconds)
        self.num_waiting += 1
        self.queued_requests.append(queued)
        self._schedule_batch()
        try:
            return await queued.future
        finally:
            self.num_waiting -= 1

    def _is_idle(self) -> bool:
        """Return whether nothing else waits or is computed."""
        return not (self.queued_requests or self.is_batch_scheduled or self.is_thread_computing)

    def _may_compute_in_stages(self, num_stages: int) -> bool:
        """Return whether the event loop may compute a single request in stages, each of them short."""
        is_short = self.stage_times.are_short(self.batch_times.single_seconds)
        return is_short and self.batch_times.choose_inline_size(1, num_stages * INLINE_SECONDS) > 0

    async def _compute_in_stages(self, request: Any, stages: Sequence[Stage]) -> Any:
        """Compute one request on the event loop, which does other work after each stage, and return its answer."""
        seconds: list[float] = []
        self.is_batch_scheduled = True  # requests that come now wait
        try:
            for stage in stages:
                request = self._run_stage(stage, request, seconds)
                await asyncio.sleep(0)
            return self._compute_now(request, seconds)
        finally:
            self.is_batch_scheduled = False
            self._schedule_rest()

    def _run_stage(self, stage: Stage, request: Any, earlier_seconds: list[float]) -> Any:
        """Return the request for the next stage, and add the CPU time of this one to those of the earlier ones."""
        started_at, cpu_started_at = time.monotonic(), time.thread_time()
        with suppress(Exception):  # the last stage meets it again, and answers the request with it
            request = stage(request)
        earlier_seconds.append(time.thread_time() - cpu_started_at)
        self.busy_seconds += time.monotonic() - started_at
        return request

    def _compute_now(self, request: Any, earlier_seconds: Sequence[float] = ()) -> Any:
        """Compute one request on the event loop and return its answer; earlier stages took `earlier_seconds`."""
        started_at, cpu_started_at = time.monotonic(), time.thread_time()
        answer = self._compute_or_split([request])[0]
        self._record_single(started_at, cpu_started_at, earlier_seconds)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _record_single(self, started_at: float, cpu_started_at: float, earlier_seconds: Sequence[float]) -> None:
        """Add the time of a single request to the averages, and call `on_batch_answered` soon."""
        stages_seconds = [*earlier_seconds, time.thread_time() - cpu_started_at]
        if earlier_seconds:
            for stage, seconds in enumerate(stages_seconds):
                self.stage_times.add_sample(stage, seconds)
        self.batch_times.add_batch(1, sum(stages_seconds))
        self.busy_seconds += time.monotonic() - started_at
        self._schedule_callback()

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
        waiting = self.queued_requests[: self.max_batch]
        inline_size = self.batch_times.choose_inline_size(len(waiting))
        if inline_size and all(self.may_run_inline(queued.request) for queued in waiting[:inline_size]):
            self._compute_inline(inline_size)
            return
        stages = self.list_first_stages(waiting[0].request) if len(waiting) == 1 else []
        if stages and self._may_compute_in_stages(len(stages) + 1) and self.may_run_inline(waiting[0].request):
            self.is_batch_scheduled = True  # requests that come now wait
            self._run_next_stage(self.queued_requests.pop(0), stages, [])
        else:
            count = self.batch_times.choose_thread_size(len(waiting))
            self.queued_requests = self.queued_requests[count:]
            self.is_thread_computing = True
            self.thread_queue.put(waiting[:count])

    def _run_next_stage(self, queued: QueuedRequest, stages: Sequence[Stage], earlier_seconds: list[float]) -> None:
        """Run a stage of a request of the queue on the event loop, and the others soon, with other work in between."""
        if stages:
            queued.request = self._run_stage(stages[0], queued.request, earlier_seconds)
            self.loop.call_soon(self.loop.call_soon, self._run_next_stage, queued, stages[1:], earlier_seconds)
            return
        self.is_batch_scheduled = False
        started_at, cpu_started_at = time.monotonic(), time.thread_time()
        deliver_outcomes(self._compute_outcomes([queued]))
        self._record_single(started_at, cpu_started_at, earlier_seconds)
        self._schedule_rest()

    def _compute_inline(self, count: int) -> None:
        """Compute the first requests of the queue on the event loop."""
        batch, self.queued_requests = self.queued_requests[:count], self.queued_requests[count:]
        started_at = time.monotonic()
        deliver_outcomes(self._compute_timed(batch))
        self.busy_seconds += time.monotonic() - started_at
        self._schedule_callback()
        self._schedule_rest()

    def _schedule_rest(self) -> None:
        """Start the next batch, if requests wait, after the last answers were sent and new requests were read."""
        if self.queued_requests:
            self.is_batch_scheduled = True
            self.loop.call_soon(self.loop.call_soon, self._start_batch)

    def _schedule_callback(self) -> None:
        """Call `on_batch_answered` two rounds of the loop later: in the first, the clients' tasks send the answers."""
        self.loop.call_soon(self.loop.call_soon, self._run_inline_callback)

    def _run_inline_callback(self) -> None:
        """Call `on_batch_answered`, unless the thread computes: then it does so itself, for this batch too."""
        if not self.is_thread_computing:
            started_at = time.monotonic()
            self._run_batch_callback()
            self.busy_seconds += time.monotonic() - started_at

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
        self.batch_times.add_batch(len(queued_requests), time.thread_time() - started_at)
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
