"""One thread that computes, and those who wait for their turn.

Work-conserving: an idle thread takes a request at once, a busy one takes all that wait when it has finished. Nobody
waits for a batch to fill.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from services.refused import Refused

log = logging.getLogger("equipoise.service")

Outcome = tuple["Turn", Any]


@dataclass(eq=False, slots=True)
class Turn:
    """One request's place in the queue."""

    asked: Any
    answer: "asyncio.Future[Any]"
    until: float
    """seconds of the monotonic clock after which nobody waits for it any more"""


class Turns:
    """Requests for one model, computed a batch at a time in a thread of its own."""

    def __init__(
        self,
        compute: Callable[[Sequence[Any]], Sequence[Any]],
        after: Callable[[], None],
        batch: int,
        waiting: int,
        name: str,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`compute` gives each request an answer, or an exception to be raised where it is waited for.

        `after` is called once a batch has its answers.
        """
        self.compute = compute
        self.after = after
        self.batch = batch
        self.most = waiting
        self.waiting = 0
        self.busy = 0.0
        """seconds in which there was something to do"""
        self.loop = loop
        self.queue: queue.SimpleQueue[Turn | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name=f"turns-{name}", daemon=True)
        self.thread.start()

    async def answer(self, asked: Any, seconds: float) -> Any:
        """What `compute` says of one request; refused where too many wait, or its turn comes too late."""
        if self.waiting >= self.most:
            raise Refused(429, f"{self.most} requests wait already: try again", "busy", wait=1)
        turn = Turn(asked, self.loop.create_future(), time.monotonic() + seconds)
        self.waiting += 1
        try:
            self.queue.put(turn)
            return await turn.answer
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """End the thread once it has done what waits."""
        self.queue.put(None)

    def _work(self) -> None:
        while (turns := self._taken()) is not None:
            begun = time.monotonic()
            outcomes = self._computed(turns)
            try:
                self.loop.call_soon_threadsafe(tell, outcomes)
            except RuntimeError:  # the loop is closed: nobody listens
                return
            try:
                self.after()
            except Exception:  # whoever waits next is answered all the same
                log.exception("what follows a batch failed")
            self.busy += time.monotonic() - begun

    def _taken(self) -> list[Turn] | None:
        """All that wait, a batch at most."""
        first = self.queue.get()
        if first is None:
            return None
        turns = [first]
        try:
            while len(turns) < self.batch:
                following = self.queue.get_nowait()
                if following is None:
                    self.queue.put(None)  # seen once these are done
                    break
                turns.append(following)
        except queue.Empty:
            pass
        return turns

    def _computed(self, turns: list[Turn]) -> list[Outcome]:
        """What comes of each turn."""
        now = time.monotonic()
        late = Refused(503, "its turn came too late: try again", "late", wait=1)
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
