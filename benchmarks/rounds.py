"""Run contestants one after another, round after round, each in its own processes."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

from benchmarks.training_case import TrainingCase

Speeds = dict[str, list[dict[str, float]]]


class Contestant(NamedTuple):
    """A benchmark program, its flags, and the package that it needs."""

    program: str
    flags: tuple[str, ...] = ()
    needs: str = "torch"


def run_rounds(contestants: dict[str, Contestant], case: TrainingCase, workers: int, count: int) -> Speeds:
    """Return the speed of each contestant in each round: if the machine slows down, it does so for all of a round."""
    speeds: Speeds = {name: [] for name in contestants}
    for _ in range(count):
        for name, contestant in contestants.items():
            speeds[name].append(run_contestant(contestant, case, workers))
    return speeds


def run_contestant(contestant: Contestant, case: TrainingCase, workers: int) -> dict[str, float]:
    """Return one contestant's speed as printed by its rank 0; exit with its error output after four failures.

    DDP on gloo sometimes aborts while shutting down (torch 2.14): such a run is repeated.
    """
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(workers)]
    steps = ["--warmup-steps", str(case.warmup_steps), "--steps", str(case.steps)]
    flags = ["--model", case.model, "--batch-size", str(case.batch), *steps, *contestant.flags]
    command = [sys.executable, *launch, "-m", f"benchmarks.{contestant.program}", *flags]
    for _ in range(4):
        process = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        if not process.returncode:
            break
    else:
        sys.exit(f"{' '.join(command)} failed:\n{process.stderr}")
    speed: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return speed
