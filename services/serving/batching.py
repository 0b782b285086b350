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

from services.http import errors

log = logging.getLogger("equipoise.service")

Outcome = tuple["Turn", Any]

MOMENT = 0.002  # seconds of computing for which the other requests of a replica may well wait


@dataclass
class Pace:
    """How long a batch takes, by the last ones."""

    size: float = 1.0
    seconds: float = MOMENT  # the first goes to the thread only if there are several

    def add(self, size: int, seconds: float) -> None:
        """One more batch was computed."""
        self.size += 0.2 * (size - self.size)
        self.seconds += 0.2 * (seconds - self.seconds)

    def foretold(self, size: int) -> float:
        """Seconds for a batch, which grow with it once it is larger than the last ones."""
        return self.seconds * max(1.0, size / self.size)


@dataclass(eq=False, slots=True)
class Turn:
    """One request's place in the queue."""

    asked: Any
    answer: "asyncio.Future[Any]"
    until: float
    """seconds of the monotonic clock after which nobody waits for it any more"""


class Turns:
    """Those who wait for one model."""

    def __init__(
        self,
        compute: Callable[[Sequence[Any]], Sequence[Any]],
        after: Callable[[], None],
        batch: int,
        waiting: int,
        name: str,
        loop: asyncio.AbstractEventLoop,
        small: Callable[[Any], bool] = lambda asked: True,
    ) -> None:
        """`compute` gives each request an answer, or an exception to be raised where it is waited for.

        `after` is called once a batch has its answers, and never while another is computed. What is not `small` goes
        to the thread.
        """
        self.compute = compute
        self.after = after
        self.batch = batch
        self.most = waiting
        self.small = small
        self.waiting = 0
        self.busy = 0.0
        """seconds in which there was something to do"""
        self.loop = loop
        self.turns: list[Turn] = []
        self.called = False
        """whether the next batch is about to be taken"""
        self.computing = False
        self.pace = Pace()
        self.queue: queue.SimpleQueue[list[Turn] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=f"turns-{name}", daemon=True)
        self.thread.start()

    async def answer(self, asked: Any, seconds: float) -> Any:
        """What `compute` says of one request; refused where too many wait, or its turn comes too late."""
        self.require_room()
        turn = Turn(asked, self.loop.create_future(), time.monotonic() + seconds)
        self.waiting += 1
        self.turns.append(turn)
        self._call()
        try:
            return await turn.answer
        finally:
            self.waiting -= 1

    def require_room(self) -> None:
        """Refuse one more where as many wait as may."""
        if self.waiting >= self.most:
            raise errors.queue_is_full(self.most)

    def close(self) -> None:
        """End the thread once it has done what it was given."""
        self.queue.put(None)

    def _call(self) -> None:
        """Take the next batch once all requests that were read together have joined it."""
        if not self.called:
            self.called = True
            self.loop.call_soon(self._take)

    def _take(self) -> None:
        self.called = False
        if self.computing or not self.turns:
            return
        turns, self.turns = self.turns[: self.batch], self.turns[self.batch :]
        if self.pace.foretold(len(turns)) > MOMENT or not all(self.small(turn.asked) for turn in turns):
            self.computing = True
            self.queue.put(turns)
            return
        begun = time.monotonic()
        tell(self._timed(turns))
        self._follow()
        self.busy += time.monotonic() - begun
        if self.turns:
            self._call()

    def _work(self) -> None:
        while (turns := self.queue.get()) is not None:
            begun = time.monotonic()
            try:
                self.loop.call_soon_threadsafe(tell, self._timed(turns))
                self._follow()
                self.busy += time.monotonic() - begun
                self.loop.call_soon_threadsafe(self._done)
            except RuntimeError:  # the loop is closed: nobody listens
                return

    def _done(self) -> None:
        """The thread is free again."""
        self.computing = False
        self._take()

    def _timed(self, turns: list[Turn]) -> list[Outcome]:
        """What comes of each turn, and how long it took."""
        begun = time.thread_time()
        outcomes = self._computed(turns)
        self.pace.add(len(turns), time.thread_time() - begun)
        return outcomes

    def _follow(self) -> None:
        """What is left to do once all have their answers."""
        try:
            self.after()
        except Exception:  # whoever waits next is answered all the same
            log.exception("what follows a batch failed")

    def _computed(self, turns: list[Turn]) -> list[Outcome]:
        """What comes of each turn."""
        now = time.monotonic()
        late = errors.turn_came_too_late()
        kept = [turn for turn in turns if turn.until >= now and not turn.answer.cancelled()]
        outcomes: list[Outcome] = [(turn, late) for turn in turns if turn.until < now]
        if kept:
            outcomes += zip(kept, self._answers([turn.asked for turn in kept]), strict=True)
        return outcomes

    def _answers(self, asked: list[Any]) -> Sequence[Any]:
        """Of a batch; if it fails as a whole, of each request by itself, so that one does no harm to others."""
        try:
            return self.compute(asked)
        except Exception as error:
            return [error] if len(asked) == 1 else [self._answers([one])[0] for one in asked]


def tell(outcomes: list[Outcome]) -> None:
    """Wake those who wait."""
    for turn, outcome in outcomes:
        if turn.answer.done():
            continue
        if isinstance(outcome, BaseException):
            turn.answer.set_exception(outcome)
        else:
            turn.answer.set_result(outcome)
