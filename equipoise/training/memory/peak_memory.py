"""Peak of the bytes in a worker's tensors: of each lap on a GPU, of the first step of a process on a CPU.

A GPU's allocator counts anyway. On a CPU torch reports each allocation to a profiler. The one in C++ that torch has
kept from before Kineto costs 1.5 ms in a step of LeNet and nothing that shows in longer ones, and counts the same to
the byte as torch.profiler, which takes 4 s to start and 40 ms more in a step of LeNet; a dispatch mode in Python takes
15 ms, and does not see what kernels allocate inside of them (10 MB of 75 MB in ResNet-18).
"""

import gc
from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig

from equipoise.training.dataloader import BatchLoader
from equipoise.training.memory.live_tensors import count_live_bytes
from equipoise.workloads import Split, Workload

Result = TypeVar("Result")
TORCH_PROFILER: Any = torch.autograd  # without types of what it keeps for itself


class PeakMemory:
    """Meter of the largest number of bytes that tensors take while steps are taken; data sets in memory aside."""

    def __init__(self, device: torch.device, interval: int, is_measurable: bool) -> None:
        """Measure on a CPU the first `interval` steps, if those are `is_measurable`."""
        self.device, self.interval = device, interval
        self.is_due = is_measurable and device.type == "cpu" and can_trace_allocations()
        self.held_bytes = 0
        self.trace: AllocationTrace | None = None
        self.bytes: int | None = None
        """peak of the last lap; None where it was not measured"""

    def begin_lap(self, *holders: object) -> None:
        """Begin a lap, before its clock starts; `holders` have all tensors that are alive before its first step."""
        self.bytes = None
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        elif self.is_due:
            self.held_bytes = count_live_bytes(*holders, without=(Workload, Split, BatchLoader))

    def take_steps(self, take_steps: Callable[[int], Tensor], count: int) -> Tensor:
        """Take the steps of a lap and measure the peak."""
        if self.device.type == "cuda" or not self.is_due:
            losses = take_steps(count)
            self.bytes = torch.cuda.max_memory_allocated(self.device) if self.device.type == "cuda" else None
            return losses
        self.is_due = False
        with AllocationTrace() as self.trace:
            losses = take_steps(self.interval)
        self.bytes, self.trace = self.held_bytes + self.trace.peak, None
        return torch.cat([losses, take_steps(count - self.interval)]) if count > self.interval else losses

    def follow_steps(self, lr_at: Callable[[int], float]) -> Callable[[int], float]:
        """Return the learning rate by step as a function that a loop calls when a step begins, to count until there."""
        if (trace := self.trace) is None:
            return lr_at

        def begin_step(step: int) -> float:
            trace.flush()
            return lr_at(step)

        return begin_step


class AllocationTrace:
    """Trace of what is allocated on the CPU, as a context manager.

    Torch keeps a report of each operation, half a megabyte in a step of a small transformer: `flush` counts those so
    far and forgets them. Garbage of before is not collected meanwhile: torch does not know how large it was. What
    another thread frees is not seen, such as the last hold of gloo's threads on a tensor that they have exchanged.
    """

    def __init__(self) -> None:
        self.peak = self.taken = 0
        self.collects_garbage = gc.isenabled()

    def __enter__(self) -> Self:
        gc.disable()
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        if self.collects_garbage:
            gc.enable()

    def flush(self) -> None:
        """Count the allocations so far, and go on."""
        self._end()
        self._begin()

    def _begin(self) -> None:
        config = ProfilerConfig(
            ProfilerState.CPU,
            report_input_shapes=False,
            profile_memory=True,
            with_stack=False,
            with_flops=False,
            with_modules=False,
            experimental_config=_ExperimentalConfig(),
        )
        TORCH_PROFILER._enable_profiler_legacy(config)

    def _end(self) -> None:
        events: list[Any] = [event for thread in TORCH_PROFILER._disable_profiler_legacy() for event in thread]
        start = events[0]
        changes = [
            (start.cpu_elapsed_us(event), index, event.cpu_memory_usage())
            for index, event in enumerate(events)
            if event.kind() == "memory_alloc"
        ]
        for _, _, change in sorted(changes):
            self.taken += change
            self.peak = max(self.peak, self.taken)


def can_trace_allocations() -> bool:
    """Return whether torch reports allocations on a CPU, and no profiler of the user's takes the reports."""
    return hasattr(TORCH_PROFILER, "_enable_profiler_legacy") and not TORCH_PROFILER._profiler_enabled()


class Allocations(NamedTuple):
    """Bytes that a function allocated on the CPU, above its start."""

    peak: int
    left: int
    """bytes that were still taken at its end"""


def trace_allocations(function: Callable[[], Result]) -> tuple[Result, Allocations]:
    """Call a function and return its result, with which its last allocations are counted, and what it allocated."""
    with AllocationTrace() as trace:
        result = function()
    return result, Allocations(trace.peak, trace.taken)
