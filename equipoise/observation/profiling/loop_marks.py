"""Marks between the parts of the steps of an observed loop.

    end of a step | data | forward, loss | backward | exchange | data or optimizer | ... | optimizer, end of a step

What follows a backward pass belongs to the optimizer if it steps next, and is waiting for data if a forward pass comes
next, as with gradient accumulation.
"""

from typing import Any

from torch.optim import Optimizer

from equipoise.observation.backward_watch import BackwardWatch
from equipoise.profiling.step_marks import PartMarks
from equipoise.training.step_timer import SpanTimer

EXCHANGE_PART = "wait for exchange"  # `exchange` is the name of the sums themselves in a trace
PART_AFTER_BACKWARD = "after backward"


class LoopMarks(PartMarks):
    """Marks of one worker, from what its loop does; `has_exchange` says whether a backward pass ends in an exchange."""

    def __init__(self, timer: SpanTimer, optimizer: Optimizer, has_exchange: bool, names_ranges: bool = False) -> None:
        super().__init__(timer, names_ranges)
        self.watch = BackwardWatch(
            lambda: self.begin_part("backward"),
            (lambda: self.begin_part(EXCHANGE_PART)) if has_exchange else None,
            lambda: self.begin_part(PART_AFTER_BACKWARD),
        )
        self.handle = optimizer.register_step_pre_hook(self._begin_optimizer)
        self.begin_part("data")

    def begin_forward(self) -> None:
        """Note that a forward pass starts."""
        self._end_as("data")
        self.begin_part("forward")

    def watch_output(self, output: Any) -> None:
        """Follow the backward pass through an output of the model, or a loss."""
        self.watch.watch_output(output)

    def end_step(self) -> None:
        """Note that the optimizer has stepped."""
        self.begin_part("data")

    def close(self) -> None:
        """Set no marks any more."""
        self.begin_part(None)
        self.handle.remove()

    def _begin_optimizer(self, *_: Any) -> None:
        self._end_as("optimizer")
        self.begin_part("optimizer")

    def _end_as(self, name: str) -> None:
        """Name what has followed a backward pass, now that it is known what it was."""
        if self.part == PART_AFTER_BACKWARD:
            self.part = name
