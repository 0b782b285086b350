"""Contestants one after another, round after round, each in processes of its own."""

import json
import os
import subprocess
import sys
from typing import NamedTuple

from benchmarks.training_case import Case

Speeds = dict[str, list[dict[str, float]]]


class Contestant(NamedTuple):
    """A program beside this one, its flags, and a package that it cannot do without."""

    program: str
    flags: tuple[str, ...] = ()
    needs: str = "torch"


def rounds(contestants: dict[str, Contestant], case: Case, workers: int, count: int) -> Speeds:
    """What each contestant did in each round: a machine that changes its pace does so for all of a round."""
    speeds: Speeds = {name: [] for name in contestants}
    for _ in range(count):
        for name, contestant in contestants.items():
            speeds[name].append(run(contestant, case, workers))
    return speeds


def run(contestant: Contestant, case: Case, workers: int) -> dict[str, float]:
    """One contestant's speed, as its rank 0 prints it; one that fails four times ends the contest with what it wrote.

    DDP on gloo sometimes aborts while it is taken down (torch 2.14): such a run is taken again.
    """
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(workers)]
    steps = ["--warmup-steps", str(case.warmup_steps), "--steps", str(case.steps)]
    wanted = ["--model", case.model, "--batch-size", str(case.batch), *steps, *contestant.flags]
    command = [sys.executable, *launch, "-m", f"benchmarks.{contestant.program}", *wanted]
    for _ in range(4):
        done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        if not done.returncode:
            break
    else:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    speed: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return speed
