"""One stopwatch for all contestants, started and stopped by the steps of their optimizer."""

import json
import multiprocessing
import os
import time
from pathlib import Path

import torch

from benchmarks.training_case import TrainingCase


class StepClock:
    """Stopwatch of `steps` steps after the warm-up, from the end of one optimizer step to the end of the next.

    What comes before the first step and after the last one is not counted: start-up,
    compilation, an evaluation at the end.
    """

    def __init__(self, case: TrainingCase) -> None:
        self.case = case
        self.steps_taken = 0
        self.start = self.end = (0.0, 0.0)

    @property
    def is_done(self) -> bool:
        """Return whether all steps have been taken."""
        return self.steps_taken >= self.case.all_steps

    def attach_to(self, optimizer: torch.optim.Optimizer) -> None:
        """Count the steps of this optimizer from now on."""
        optimizer.register_step_post_hook(lambda *_: self.count_step())

    def print_speed(self) -> None:
        """Print the measured speed as one line of JSON, on rank 0."""
        if self.steps_taken != self.case.all_steps:
            raise ValueError(
                f"cannot report a speed: {self.steps_taken} steps were taken instead of {self.case.all_steps}"
            )
        seconds, cpu = (end - start for end, start in zip(self.end, self.start, strict=True))
        own_examples = self.case.steps * self.case.batch
        if read_rank() == 0:
            speed = {
                "examples_per_second": own_examples * read_world_size() / seconds,
                "cpu_seconds_per_example": cpu / own_examples,
            }
            print(json.dumps(speed), flush=True)

    def count_step(self) -> None:
        """Count a step that has just ended."""
        self.steps_taken += 1
        if self.steps_taken == self.case.warmup_steps:
            self.start = read_clocks()
        elif self.steps_taken == self.case.all_steps:
            self.end = read_clocks()


def read_rank() -> int:
    """Return the rank of this process, as set by torchrun."""
    return int(os.environ["RANK"])


def read_world_size() -> int:
    """Return the number of processes that torchrun started."""
    return int(os.environ["WORLD_SIZE"])


def read_clocks() -> tuple[float, float]:
    """Return wall-clock and CPU seconds once all work queued on the GPU is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter(), read_cpu_seconds()


def read_cpu_seconds() -> float:
    """Return user and system seconds of this process and, where /proc exists, of its data loader processes."""
    ticks = 0
    for loader in multiprocessing.active_children():
        stat = Path(f"/proc/{loader.pid}/stat")
        if stat.exists():
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
