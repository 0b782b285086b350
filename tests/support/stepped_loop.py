"""Event loop with real sockets and threads whose clock is put forward by the test instead of waiting."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

REAL_TIMEOUT_SECONDS = 10.0


class SteppedLoop(asyncio.SelectorEventLoop):
    """Event loop whose clock stands still until `advance` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def time(self) -> float:
        """Return the seconds of the loop's own clock."""
        return self.now

    async def advance(self, seconds: float) -> None:
        """Put the clock forward and run everything that becomes due."""
        self.now += seconds
        await run_pending()


async def run_pending() -> None:
    """Let callbacks, and what they start, run."""
    for _ in range(20):
        await asyncio.sleep(0)


async def wait_for(condition: Callable[[], Any]) -> Any:
    """Run the loop until a condition holds, and return its value; the real clock bounds the wait."""
    deadline = time.monotonic() + REAL_TIMEOUT_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition does not become true"
        await asyncio.to_thread(time.sleep, 0.001)
    return value


def run_stepped(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop whose clock stands still."""
    with asyncio.Runner(loop_factory=SteppedLoop) as runner:
        return runner.run(main)
