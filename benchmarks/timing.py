"""One stopwatch for all contestants, started and stopped by their optimizer's steps."""

import json
import multiprocessing
import os
import time
from pathlib import Path

import torch

from benchmarks.training_case import Case


class Clock:
    """Times `steps` steps after the warm-up, each from the end of one optimizer step to the end of the next.

    So what comes before the first step and after the last one is not counted: start-up,
    compilation, an evaluation at the end.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.taken = 0
        self.start = self.end = (0.0, 0.0)

    @property
    def done(self) -> bool:
        """Whether all steps have been taken."""
        return self.taken >= self.case.all_steps

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Count this optimizer's steps."""
        optimizer.register_step_post_hook(lambda *_: self.tick())

    def report(self) -> None:
        """Print what was measured, on rank 0, as one line of JSON."""
        if self.taken != self.case.all_steps:
            raise ValueError(f"{self.taken} steps were taken, not the {self.case.all_steps} asked for")
        seconds, cpu = (end - start for end, start in zip(self.end, self.start, strict=True))
        own = self.case.steps * self.case.batch
        if rank() == 0:
            speed = {"examples_per_second": own * workers() / seconds, "cpu_seconds_per_example": cpu / own}
            print(json.dumps(speed), flush=True)

    def tick(self) -> None:
        """Count a step that has just ended."""
        self.taken += 1
        if self.taken == self.case.warmup_steps:
            self.start = now()
        elif self.taken == self.case.all_steps:
            self.end = now()


def rank() -> int:
    """This process's place among the workers, as torchrun says."""
    return int(os.environ["RANK"])


def workers() -> int:
    """Processes that torchrun started."""
    return int(os.environ["WORLD_SIZE"])


def now() -> tuple[float, float]:
    """Seconds of the wall clock and of the processor, once all work handed out is done."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter(), cpu_seconds()


def cpu_seconds() -> float:
    """User and system time of this process and, where /proc tells, of the readers it has started."""
    ticks = 0
    for reader in multiprocessing.active_children():
        stat = Path(f"/proc/{reader.pid}/stat")
        if stat.exists():
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
