"""Profiler of an observed loop: blocks of steps without marks and with them in turns, and then a trace.

It begins after the first lap and takes part in nothing that the loop does, so workers need not begin each block
together. Evaluations and other pauses end a block, which is taken again.
"""

import gzip
import json
import statistics
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.profiler import ProfilerActivity, profile, record_function

from equipoise.observation.loop_setup import unwrap_model
from equipoise.observation.profiling.layer_operations import LayerOperations
from equipoise.observation.profiling.loop_marks import EXCHANGE_PART, LoopMarks
from equipoise.profiling.layer_work import count_layer_bytes, list_layers
from equipoise.profiling.profile_report import LayerWork
from equipoise.profiling.profile_steps import MAX_TRACE_BYTES
from equipoise.profiling.step_marks import RANGE_PREFIX
from equipoise.profiling.step_trace import LAYER_PREFIX, StepTrace, export_trace, name_layers
from equipoise.profiling.sync_points import SyncWatch
from equipoise.profiling.trace_events import summarize_trace
from equipoise.training.step_timer import SpanTimer

BLOCK_STEPS, TURNS = 5, 6
PROFILED_BLOCK_STEPS = 2 * BLOCK_STEPS * TURNS  # steps before the trace
MAX_BROKEN_BLOCKS = 50  # of a loop that pauses more often than every few steps


@dataclass
class WorkerProfile:
    """What one worker has measured of its steps; seconds are those of a step."""

    plain_seconds: list[float] = field(default_factory=list)
    """of each block of steps without marks"""
    marked_seconds: list[float] = field(default_factory=list)
    spans: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """by part, of each block with marks"""
    sync_calls: list[list[Any]] = field(default_factory=list)
    """place and seconds of each call that waits for other workers, in all blocks with marks"""
    sync_seconds: dict[str | None, float] = field(default_factory=lambda: defaultdict(float))
    """seconds of these calls in all blocks, by the part that they lie in"""
    layers: list[LayerWork] = field(default_factory=list)
    trace: StepTrace | None = None
    traced_steps: int = 0

    def mean_span(self, part: str) -> float:
        """Return the mean seconds of a part of a step."""
        return statistics.fmean(self.spans[part] or [0.0])


class LoopProfiler:
    """Profiler of one worker's loop: hooks report what the loop does, and `result` holds the profile at its end."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        device: torch.device,
        has_exchange: bool,
        batch_size: int,
        steps: int,
    ) -> None:
        self.model, self.optimizer, self.batch_size = unwrap_model(model), optimizer, batch_size
        self.is_compiled = any(map(is_compiled, model.modules()))
        self.has_exchange, self.traced_steps = has_exchange, steps
        self.timer = SpanTimer(device)
        self.marks: LoopMarks | None = None
        self.operations: LayerOperations | None = None
        self.was_paused = self.is_tracing = self.has_forward = self.has_given_up = False
        self.measured = WorkerProfile()
        self.result: WorkerProfile | None = None
        self.stages = self._measure()
        next(self.stages)

    def begin_forward(self) -> None:
        """Note that a forward pass in training mode starts."""
        self.has_forward = True
        if self.marks:
            self.marks.begin_forward()
        if self.operations:
            self.operations.begin_forward()

    def watch_output(self, output: Any) -> None:
        """Follow the backward pass through an output of the model, or a loss."""
        if self.operations:
            self.operations.end_forward()
        if self.marks:
            self.marks.watch_output(output)

    def end_step(self) -> None:
        """Note that the optimizer has stepped."""
        if not self.has_forward:
            return
        self.has_forward = False
        if self.marks:
            self.marks.end_step()
        next(self.stages, None)

    def pause(self) -> None:
        """Note that the loop does something else than training: the time of these steps does not count."""
        self.was_paused = True
        if self.is_tracing:  # an evaluation would not fit into the trace
            next(self.stages, None)

    def close(self) -> None:
        """End the profile, wherever it is."""
        self.stages.close()

    def _measure(self) -> Generator[None]:
        """Measure blocks and a trace; each `yield` waits for the end of a step."""
        broken = 0
        while len(self.measured.marked_seconds) < TURNS and broken < MAX_BROKEN_BLOCKS:
            is_plain = len(self.measured.plain_seconds) == len(self.measured.marked_seconds)
            yield from self._time_plain_block() if is_plain else self._time_marked_block()
            broken += self.was_paused
        if broken == MAX_BROKEN_BLOCKS:
            self.has_given_up = True
            return
        yield from self._count_layers()
        yield from self._trace_steps(self.traced_steps)
        self.result = self.measured

    def _time_block(self) -> Iterator[None]:
        if self.marks:
            self.marks.begin_part("data")
        self.timer.pop_seconds()
        self.was_paused, start = False, self.timer.mark()
        for _ in range(BLOCK_STEPS):
            yield
        if self.marks:
            self.marks.begin_part(None)  # what sets the marks and takes them away is no part of a step
        self.timer.record_span("block", start)

    def _time_plain_block(self) -> Iterator[None]:
        yield from self._time_block()
        if not self.was_paused:
            self.measured.plain_seconds.append(self.timer.pop_seconds()["block"] / BLOCK_STEPS)

    def _time_marked_block(self) -> Iterator[None]:
        with self._set_marks() as marks, SyncWatch(lambda: marks.part).watch() as sync_watch:
            yield from self._time_block()
        if self.was_paused:
            return
        seconds, measured = self.timer.pop_seconds(), self.measured
        measured.marked_seconds.append(seconds.pop("block") / BLOCK_STEPS)
        for part in ("data", "forward", "backward", EXCHANGE_PART, "optimizer"):
            measured.spans[part].append(seconds.get(part, 0.0) / BLOCK_STEPS)
        measured.sync_calls += [[tuple(place), took] for place, took in sync_watch.calls]
        for waiting_part, took in sync_watch.seconds_by_part.items():
            measured.sync_seconds[waiting_part] += took

    @contextmanager
    def _set_marks(self, names_ranges: bool = False) -> Iterator[LoopMarks]:
        self.marks = LoopMarks(self.timer, self.optimizer, self.has_exchange, names_ranges)
        try:
            yield self.marks
        finally:
            self.marks.close()
            self.marks = None

    def _count_layers(self) -> Iterator[None]:
        """Count what each layer does in one step; hooks in a compiled model would have it compiled again."""
        is_counted = self.is_compiled
        while not is_counted:
            self.was_paused = False
            self.operations = LayerOperations(self.model)
            with (
                self._set_marks() as marks,
                count_layer_bytes(self.model, self.batch_size) as layer_bytes,
                self.operations as operations,
            ):
                yield
                passes = max(1, sum(name == "forward" for name, *_ in marks.timer.spans))
            self.operations = None
            self.timer.pop_seconds()
            is_counted = not self.was_paused
        if not self.is_compiled:
            counted = {name: [values / passes for values in counts] for name, counts in layer_bytes.items()}
            forward, both = operations.find_own(self.batch_size * passes)
            self.measured.layers = list_layers(self.model, forward, both, counted)

    def _trace_steps(self, steps: int) -> Iterator[None]:
        """Trace so many steps, or as many as keep the trace below its limit; a pause ends the trace."""
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.timer.device.type == "cuda" else [])]
        yield  # a step that warms up, after the hooks of layers have changed
        self.timer.pop_seconds()
        taken, start = 0, self.timer.mark()
        with ExitStack() as stack:
            profiler = stack.enter_context(profile(activities=activities))
            stack.enter_context(record_function(RANGE_PREFIX + "steps"))
            if not self.is_compiled:
                stack.enter_context(name_layers(self.model))
            stack.enter_context(self._set_marks(names_ranges=True))
            self.was_paused, self.is_tracing = False, True
            while taken < steps:
                yield
                if self.was_paused:
                    break
                taken += 1
            self.is_tracing = False
        self.timer.record_span("trace", start)
        content = export_trace(profiler) if taken else b""
        if len(content) > MAX_TRACE_BYTES and taken > 1:
            steps, taken = max(1, int(0.8 * taken * MAX_TRACE_BYTES / len(content))), 0
        if not taken:
            yield from self._trace_steps(steps)
            return
        events: list[dict[str, Any]] = json.loads(gzip.decompress(content))["traceEvents"]
        summary = summarize_trace(events, taken, LAYER_PREFIX, RANGE_PREFIX)
        seconds = self.timer.pop_seconds()["trace"] / taken
        self.measured.trace, self.measured.traced_steps = StepTrace(content, seconds, summary), taken


def is_compiled(module: nn.Module) -> bool:
    """Return whether torch.compile has compiled a module."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
