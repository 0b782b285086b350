"""The profile of an observed loop: when it begins, which laps it is in, and its files."""

import warnings
from typing import TYPE_CHECKING, Literal

import msgspec
import torch
from torch import nn
from torch.optim import Optimizer

from equipoise.config import TrainConfig
from equipoise.hardware import describe_hardware
from equipoise.observation.observed_run import ObservedRun
from equipoise.observation.worker_group import WorkerGroup

if TYPE_CHECKING:  # which observing without a profile does not load
    from equipoise.observation.profiling.loop_profiler import LoopProfiler

NO_PROFILE = (
    "there is no profile: it takes the first lap, 62 steps and profile_steps further ones, among them five in a row"
    " without an evaluation"
)


class LoopProfile:
    """Profile of one worker's loop, with a trace of so many steps; without any there is none."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.state: Literal["none", "to begin", "begun", "written"] = "to begin" if steps else "none"
        self.profiler: LoopProfiler | None = None
        self.laps: set[int] = set()
        """laps in which steps were profiled"""

    @property
    def progress(self) -> float:
        """1 if this worker has profiled all the steps that it was to, -1 if it cannot, 0 before."""
        if self.profiler is None:
            return 0.0
        return -1.0 if self.profiler.has_given_up else float(self.profiler.result is not None)

    def warn_if_missing(self) -> None:
        """Warn of a profile that was asked for and is not there at the end of the loop."""
        if self.state in ("to begin", "begun"):
            warnings.warn(f"equipoise.observe: {NO_PROFILE}", RuntimeWarning, stacklevel=3)

    def begin(
        self, model: nn.Module, optimizer: Optimizer, device: torch.device, workers: int, batch_size: int
    ) -> "LoopProfiler":
        """Begin to profile, and return the profiler that hooks are to tell what the loop does."""
        from equipoise.observation.profiling.loop_profiler import LoopProfiler

        self.state = "begun"
        self.profiler = LoopProfiler(model, optimizer, device, workers > 1, batch_size, self.steps)
        return self.profiler

    def note_lap(self, index: int) -> None:
        """Note that a lap has ended; it is marked if steps in it were profiled."""
        if self.profiler is not None:
            self.laps.add(index)

    def write(
        self, run: ObservedRun | None, workers: WorkerGroup, config: TrainConfig, nodes: int, device: torch.device
    ) -> None:
        """Write the profile of all workers, which call this together once each has its result."""
        from equipoise.observation.profiling.loop_report import ProfileRow, build_loop_report, build_profile_row
        from equipoise.profiling.machine_limits import measure_limits_within_memory

        profiler = self.profiler
        if profiler is None or profiler.result is None or profiler.result.trace is None:
            return
        self.state = "written"
        limits = measure_limits_within_memory(config.precision, device)  # on all workers at the same time
        encoded = workers.gather_bytes(msgspec.json.encode(build_profile_row(profiler.result)))
        rows = [msgspec.json.decode(row, type=ProfileRow) for row in encoded]
        if run:
            report = build_loop_report(rows, profiler.result, limits, config, describe_hardware(device), nodes)
            run.write_profile(report, profiler.result.trace.content)
