"""Steps without one synchronisation point, to time what it costs: its calls return at once and change no tensor."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from equipoise.profiling.stepped_training import SteppedTraining
from equipoise.profiling.sync_points import COLLECTIVES, find_user_line


class FinishedWork:
    """Work of a collective call that was not made."""

    def wait(self, *_: Any, **__: Any) -> bool:
        """Return at once, as a finished call does."""
        return True

    def is_completed(self) -> bool:
        """Return that there is nothing left to do."""
        return True

    def get_future(self) -> "torch.futures.Future[None]":
        """Return a future that has its result."""
        future: torch.futures.Future[None] = torch.futures.Future()
        future.set_result(None)
        return future


class StepsWithoutCall(SteppedTraining):
    """Training whose steps leave out the collective calls of one line."""

    def __init__(self, base: SteppedTraining, file: str, line: int) -> None:
        self.training, self.file, self.line = base.training, file, line

    def take_block(self, count: int) -> dict[str, float]:
        """Take steps without the calls, and return the mean seconds of a step by span."""
        with skip_calls(self.file, self.line):
            return super().take_block(count)


@contextmanager
def skip_calls(file: str, line: int) -> Iterator[None]:
    """Skip the collective calls of a line for the length of the block."""
    originals = {name: vars(dist.ProcessGroup)[name] for name in COLLECTIVES if name in vars(dist.ProcessGroup)}

    def build_method(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            place = find_user_line(sys._getframe(1), COLLECTIVES[name])
            if place is not None and (place.file, place.line) == (file, line):
                return FinishedWork()
            return method(*arguments, **keywords)

        return call

    for name in originals:
        setattr(dist.ProcessGroup, name, build_method(name, getattr(dist.ProcessGroup, name)))
    try:
        yield
    finally:
        for name, method in originals.items():
            setattr(dist.ProcessGroup, name, method)
