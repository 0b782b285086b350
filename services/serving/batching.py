"""Requests for one model, computed a batch at a time.

Work-conserving: what waits is taken at once when nothing is being computed, all of it up to a batch; nobody waits for a
batch to fill. Work that is done in a moment is done where requests are read: to hand it to a thread and back costs as
much again. Anything longer goes to a thread of its own, so that health is told and refusals are made meanwhile.
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

logger = logging.getLogger("equipoise.service")

RequestOutcome = tuple["QueuedRequest", Any]

INLINE_SECONDS = 0.002  # seconds of computing for which the other requests of a replica may well wait


@dataclass
class BatchTimeEstimate:
    """How long a batch takes, by the last ones."""

    mean_size: float = 1.0
    mean_seconds: float = INLINE_SECONDS  # the first goes to the thread only if there are several

    def add_batch(self, size: int, seconds: float) -> None:
        """One more batch was computed."""
        self.mean_size += 0.2 * (size - self.mean_size)
        self.mean_seconds += 0.2 * (seconds - self.mean_seconds)

    def predict_seconds(self, size: int) -> float:
        """Seconds for a batch, which grow with it once it is larger than the last ones."""
        return self.mean_seconds * max(1.0, size / self.mean_size)


@dataclass(eq=False, slots=True)
class QueuedRequest:
    """One request's place in the queue."""

    request: Any
    future: "asyncio.Future[Any]"
    deadline: float
    """seconds of the monotonic clock after which nobody waits for it any more"""


class DynamicBatcher:
    """Those who wait for one model."""

    def __init__(
        self,
        compute_batch: Callable[[Sequence[Any]], Sequence[Any]],
        on_batch_answered: Callable[[], None],
        max_batch: int,
        max_waiting: int,
        name: str,
        loop: asyncio.AbstractEventLoop,
        may_run_inline: Callable[[Any], bool] = lambda asked: True,
    ) -> None:
        """`compute` gives each request an answer, or an exception to be raised where it is waited for.

        `after` is called once a batch has its answers, and never while another is computed. What is not `small` goes
        to the thread.
        """
        self.compute_batch = compute_batch
        self.on_batch_answered = on_batch_answered
        self.max_batch = max_batch
        self.max_waiting = max_waiting
        self.may_run_inline = may_run_inline
        self.num_waiting = 0
        self.busy_seconds = 0.0
        """seconds in which there was something to do"""
        self.loop = loop
        self.queued_requests: list[QueuedRequest] = []
        self.is_batch_scheduled = False
        """whether the next batch is about to be taken"""
        self.is_thread_computing = False
        self.time_estimate = BatchTimeEstimate()
        self.thread_queue: queue.SimpleQueue[list[QueuedRequest] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run_thread, name=f"turns-{name}", daemon=True)
        self.thread.start()

    async def submit(self, request: Any, timeout_seconds: float) -> Any:
        """What `compute` says of one request; refused where too many wait, or its turn comes too late."""
        self.reject_if_full()
        turn = QueuedRequest(request, self.loop.create_future(), time.monotonic() + timeout_seconds)
        self.num_waiting += 1
        self.queued_requests.append(turn)
        self._schedule_batch()
        try:
            return await turn.future
        finally:
            self.num_waiting -= 1

    def reject_if_full(self) -> None:
        """Refuse one more where as many wait as may."""
        if self.num_waiting >= self.max_waiting:
            raise queue_is_full(self.max_waiting)

    def close(self) -> None:
        """End the thread once it has done what it was given."""
        self.thread_queue.put(None)

    def _schedule_batch(self) -> None:
        """Take the next batch once all requests that were read together have joined it."""
        if not self.is_batch_scheduled:
            self.is_batch_scheduled = True
            self.loop.call_soon(self._start_batch)

    def _start_batch(self) -> None:
        self.is_batch_scheduled = False
        if self.is_thread_computing or not self.queued_requests:
            return
        turns, self.queued_requests = self.queued_requests[: self.max_batch], self.queued_requests[self.max_batch :]
        if self.time_estimate.predict_seconds(len(turns)) > INLINE_SECONDS or not all(
            self.may_run_inline(turn.request) for turn in turns
        ):
            self.is_thread_computing = True
            self.thread_queue.put(turns)
            return
        begun = time.monotonic()
        deliver_outcomes(self._compute_timed(turns))
        self._run_batch_callback()
        self.busy_seconds += time.monotonic() - begun
        if self.queued_requests:
            self._schedule_batch()

    def _run_thread(self) -> None:
        while (turns := self.thread_queue.get()) is not None:
            begun = time.monotonic()
            try:
                self.loop.call_soon_threadsafe(deliver_outcomes, self._compute_timed(turns))
                self._run_batch_callback()
                self.busy_seconds += time.monotonic() - begun
                self.loop.call_soon_threadsafe(self._on_thread_idle)
            except RuntimeError:  # the loop is closed: nobody listens
                return

    def _on_thread_idle(self) -> None:
        """The thread is free again."""
        self.is_thread_computing = False
        self._start_batch()

    def _compute_timed(self, queued_requests: list[QueuedRequest]) -> list[RequestOutcome]:
        """What comes of each turn, and how long it took."""
        begun = time.thread_time()
        outcomes = self._compute_outcomes(queued_requests)
        self.time_estimate.add_batch(len(queued_requests), time.thread_time() - begun)
        return outcomes

    def _run_batch_callback(self) -> None:
        """What is left to do once all have their answers."""
        try:
            self.on_batch_answered()
        except Exception:  # whoever waits next is answered all the same
            logger.exception("what follows a batch failed")

    def _compute_outcomes(self, queued_requests: list[QueuedRequest]) -> list[RequestOutcome]:
        """What comes of each turn."""
        now = time.monotonic()
        late = turn_came_too_late()
        kept = [turn for turn in queued_requests if turn.deadline >= now and not turn.future.cancelled()]
        outcomes: list[RequestOutcome] = [(turn, late) for turn in queued_requests if turn.deadline < now]
        if kept:
            outcomes += zip(kept, self._compute_or_split([turn.request for turn in kept]), strict=True)
        return outcomes

    def _compute_or_split(self, requests: list[Any]) -> Sequence[Any]:
        """Of a batch; if it fails as a whole, of each request by itself, so that one does no harm to others."""
        try:
            return self.compute_batch(requests)
        except Exception as error:
            return [error] if len(requests) == 1 else [self._compute_or_split([one])[0] for one in requests]


def deliver_outcomes(outcomes: list[RequestOutcome]) -> None:
    """Wake those who wait."""
    for turn, outcome in outcomes:
        if turn.future.done():
            continue
        if isinstance(outcome, BaseException):
            turn.future.set_exception(outcome)
        else:
            turn.future.set_result(outcome)
