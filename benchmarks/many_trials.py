"""What a sweep's trials cost beside their training: python -m benchmarks.many_trials [--trials 1000]

Trials of nothing on two slots, and after each hundred of them: CPU time of the command a trial, and MiB that the
command, Ray's control store (GCS) and all of Ray have to themselves, beside the files that the sweep left. Then the
slope of each: what a thousand trials more would add.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.drift.memory import resident
from equipoise.hardware import describe_hardware
from jobs.cluster.processes import find_process_tree, read_stat_fields
from tests.support.ray_cluster import Cluster, descendants, running

BATCHES, RATES = "8:64", 5  # four batches, with five rates each
ROW = 100  # trials
TICKS = os.sysconf("SC_CLK_TCK")


class Look(NamedTuple):
    """What there was after so many trials."""

    trials: int
    command: float
    """CPU seconds"""
    ray: float
    """CPU seconds"""
    command_mib: float
    gcs_mib: float
    ray_mib: float
    files: int


def main() -> None:
    """Print a row after each hundred trials."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--trials", type=int, default=1000)
    asked.add_argument("--profile", type=Path, help="leave cProfile's figures of the command here")
    given = asked.parse_args()
    seeds = -(-given.trials // (4 * RATES))
    profile = ["-m", "cProfile", "-o", str(given.profile)] if given.profile else []
    print(", ".join(f"{name} {value}" for name, value in describe_hardware(torch.device("cpu")).items()))
    with TemporaryDirectory() as name, running() as cluster:
        out = Path(name, "sweep")
        words = [
            "--workload",
            "benchmarks.instant_workload:workload",
            "--workers",
            "1",
            "--batch-size",
            BATCHES,
            "--exhaustive",
        ]
        more = ["--seeds", str(seeds), "--max-examples", "64", "--out", str(out)]
        command = cluster.start(sys.executable, *profile, "-m", "jobs.sweep", *words, *more, log=Path(name, "log"))
        print("| trials | CPU ms of the command a trial | of Ray | command, MiB | GCS | all of Ray | files |")
        print("|--:|--:|--:|--:|--:|--:|--:|", flush=True)
        rows = list(looks(command, cluster, out))
        status = command.wait()
        if status or len(rows) < 3:
            sys.exit(f"the sweep ended with {status}: {Path(name, 'log').read_text()[-2000:]}")
    trials, *columns = np.array(rows[1:], float).T
    for what, column in zip(Look._fields[3:], columns[2:], strict=True):
        print(f"{what}: {np.polyfit(trials / 1000, column, 1)[0]:+,.1f} a thousand trials")


def looks(command: Popen[str], cluster: Cluster, out: Path) -> Iterator[Look]:
    """One at the first trial, and one each hundred, told as they come."""
    due, before = 1, None
    while command.poll() is None:
        trials = done(out / "trials")
        if trials >= due:
            look = looked(trials, command.pid, cluster.head_pid, out)
            if before:
                count = look.trials - before.trials
                ours, rays = ((look[at] - before[at]) / count * 1000 for at in (1, 2))
                sizes = f"{look.command_mib:.1f} | {look.gcs_mib:.1f} | {look.ray_mib:.1f} | {look.files:,}"
                print(f"| {look.trials:,} | {ours:.1f} | {rays:.1f} | {sizes} |", flush=True)
            yield look
            before, due = look, trials // ROW * ROW + ROW
        time.sleep(0.1)


def done(folder: Path) -> int:
    """Trials that have written a file."""
    try:
        return sum(name.endswith(".json") and not name.startswith(".") for name in os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        return 0


def looked(trials: int, command: int, head: int, out: Path) -> Look:
    """At the command and Ray's family."""
    ray = descendants(head)
    gcs = sum(resident(pid) for pid, words in ray.items() if "gcs_server" in words)
    return Look(
        trials=trials,
        command=sum(map(cpu, find_process_tree(command))),
        ray=sum(map(cpu, ray)),
        command_mib=sum(map(resident, find_process_tree(command))),
        gcs_mib=gcs,
        ray_mib=sum(map(resident, ray)),
        files=sum(len(files) for _, _, files in os.walk(out)),
    )


def cpu(pid: int) -> float:
    """Seconds that a process has computed, with children of its own that have ended."""
    found = read_stat_fields(pid)
    return sum(map(int, found[11:15])) / TICKS if found else 0.0


if __name__ == "__main__":
    main()
