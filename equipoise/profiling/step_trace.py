"""Trace of a few steps by torch's profiler: a timeline for Perfetto, seconds by layer, and what hides the exchange."""

import gzip
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from equipoise.profiling.step_marks import RANGE_PREFIX, StepMarks
from equipoise.profiling.stepped_training import SteppedTraining
from equipoise.profiling.trace_events import TraceSummary, summarize_trace

LAYER_PREFIX = "layer: "  # of the ranges of layers in a trace


class StepTrace(NamedTuple):
    """Traced steps of one worker."""

    content: bytes
    """Chrome's JSON format, compressed by gzip"""
    seconds: float
    """mean seconds of a step"""
    summary: TraceSummary


def trace_steps(stepped: SteppedTraining, count: int) -> StepTrace:
    """Take steps under torch's profiler, and return the trace with its summary. All workers call this."""
    device = stepped.training.device
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    is_compiled = stepped.training.config.compile  # which hooks in the model would have compiled again
    named_layers = nullcontext() if is_compiled else name_layers(stepped.training.model)
    marks = StepMarks(stepped.training, names_ranges=True).set_marks()
    with marks, named_layers:
        with profile(activities=activities):  # the first steps under marks and a profiler take longer
            stepped.take_block(stepped.interval)
        with profile(activities=activities) as profiler:
            start = time.perf_counter()
            with record_function(RANGE_PREFIX + "steps"):
                stepped.take_block(count)
            seconds = (time.perf_counter() - start) / count
    content = export_trace(profiler)
    events: list[dict[str, Any]] = json.loads(gzip.decompress(content))["traceEvents"]
    return StepTrace(content, seconds, summarize_trace(events, count, LAYER_PREFIX, RANGE_PREFIX))


def export_trace(profiler: profile) -> bytes:
    """Return a trace as compressed JSON."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json.gz"
        profiler.export_chrome_trace(str(path))
        return path.read_bytes()


@contextmanager
def name_layers(model: nn.Module) -> Iterator[None]:
    """Name the range of each module's forward pass in a trace for the length of the block."""
    open_ranges: list[Any] = []

    def build_hook(name: str) -> Any:
        def enter(*_: Any) -> None:
            layer_range = record_function(LAYER_PREFIX + name)
            layer_range.__enter__()
            open_ranges.append(layer_range)

        return enter

    def leave(*_: Any) -> None:
        open_ranges.pop().__exit__(None, None, None)

    handles = [
        handle
        for name, module in model.named_modules()
        for handle in (module.register_forward_pre_hook(build_hook(name)), module.register_forward_hook(leave))
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
