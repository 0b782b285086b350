"""Marks between the parts of a step: they split computing into passes, and name ranges in a trace.

They replace attributes of a training in progress while they are in place, so that other trainings pay nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch.profiler import record_function

from equipoise.training.loop import Training
from equipoise.training.step_timer import SpanTimer, TimeMark

RANGE_PREFIX = "equipoise: "  # of the ranges of parts in a trace


class PartMarks:
    """Marks between the parts of a step: a span of each in a timer, and a range in a trace if `names_ranges`."""

    def __init__(self, timer: SpanTimer, names_ranges: bool = False) -> None:
        self.timer, self.names_ranges = timer, names_ranges
        self.part: str | None = None
        """part of the step that this worker is in; None between parts"""
        self.start: TimeMark = timer.mark()
        self.range: Any = None

    def begin_part(self, name: str | None) -> None:
        """End the part that this worker is in, and begin another one."""
        if self.part is not None:
            self.timer.record_span(self.part, self.start)
        if self.range is not None:
            self.range.__exit__(None, None, None)
            self.range = None
        self.part, self.start = name, self.timer.mark()
        if name is not None and self.names_ranges:
            self.range = record_function(RANGE_PREFIX + name)
            self.range.__enter__()


class StepMarks(PartMarks):
    """Marks in one training: spans `forward` and `backward` of its timer, and the part that it is in."""

    def __init__(self, training: Training, names_ranges: bool = False) -> None:
        super().__init__(training.timer, names_ranges)
        self.training = training

    @contextmanager
    def set_marks(self) -> Iterator["StepMarks"]:
        """Put the marks in place for the length of the block."""
        backward_pass, steps = self.training.backward_pass, self.training.steps
        model, workload = backward_pass.forward_model, backward_pass.workload
        batches = getattr(steps, "batches", None)
        backward_pass.forward_model = self._begin_before("forward", model)
        backward_pass.workload = replace(workload, loss=self._begin_after("backward", workload.loss))
        backward_pass.run = self._begin_after(None, backward_pass.run)  # type: ignore[method-assign]
        if batches is not None and self.names_ranges:
            is_hosting = isinstance(batches, list)  # a process that hosts several workers has batches of each
            steps.batches = [*map(mark_batches, batches)] if is_hosting else mark_batches(batches)  # type: ignore[union-attr]
        try:
            yield self
        finally:
            backward_pass.forward_model, backward_pass.workload = model, workload
            del backward_pass.run  # the method of its class takes its place again
            if batches is not None and self.names_ranges:
                steps.batches = batches  # type: ignore[union-attr]

    def _begin_before(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            self.begin_part(name)
            return function(*arguments, **keywords)

        return run

    def _begin_after(self, name: str | None, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **keywords: Any) -> Any:
            result = function(*arguments, **keywords)
            self.begin_part(name)
            return result

        return run


def mark_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches, each loaded in a range of its own in a trace."""
    while True:
        with record_function(RANGE_PREFIX + "data"):
            batch = next(batches)
        yield batch
