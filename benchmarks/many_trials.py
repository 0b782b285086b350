"""What the trials of a sweep cost beside their training: python -m benchmarks.many_trials [--trials 1000].

Runs instant trials on two slots and prints after each hundred: CPU time of the command per trial, the private memory
of the command, of Ray's control store (GCS) and of all of Ray in MiB, and the files that the sweep wrote. Then the
slope of each: what a thousand further trials would add.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import psutil
import torch

from benchmarks.drift.memory import read_private_mib
from equipoise.hardware import describe_hardware
from jobs.cluster.processes import find_process_tree
from tests.support.ray_cluster import Cluster, list_descendants, start_cluster

BATCH_RANGE, RATES_PER_BATCH = "8:64", 5  # four batches with five learning rates each
TRIALS_PER_ROW = 100


class ResourceSample(NamedTuple):
    """CPU time, memory and files after a number of trials."""

    trials: int
    command_cpu_seconds: float
    ray_cpu_seconds: float
    command_mib: float
    gcs_mib: float
    ray_mib: float
    files: int


def main() -> None:
    """Print a row after each hundred trials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--profile", type=Path, help="file for the cProfile statistics of the command")
    arguments = parser.parse_args()
    seeds = -(-arguments.trials // (4 * RATES_PER_BATCH))
    profile = ["-m", "cProfile", "-o", str(arguments.profile)] if arguments.profile else []
    print(describe_hardware(torch.device("cpu")))
    with TemporaryDirectory() as name, start_cluster() as cluster:
        out = Path(name, "sweep")
        flags = [
            "--workload",
            "benchmarks.instant_workload:build_instant_workload",
            "--workers",
            "1",
            "--batch-size",
            BATCH_RANGE,
            "--exhaustive",
        ]
        limits = ["--seeds", str(seeds), "--max-examples", "64", "--out", str(out)]
        command = cluster.start(sys.executable, *profile, "-m", "jobs.sweep", *flags, *limits, log=Path(name, "log"))
        print("| trials | CPU ms of the command a trial | of Ray | command, MiB | GCS | all of Ray | files |")
        print("|--:|--:|--:|--:|--:|--:|--:|", flush=True)
        rows = list(sample_while_running(command, cluster, out))
        status = command.wait()
        if status or len(rows) < 3:
            sys.exit(f"the sweep exited with status {status}: {Path(name, 'log').read_text()[-2000:]}")
    trials, *columns = np.array(rows[1:], float).T
    for field, column in zip(ResourceSample._fields[3:], columns[2:], strict=True):
        print(f"{field}: {np.polyfit(trials / 1000, column, 1)[0]:+,.1f} per thousand trials")


def sample_while_running(command: Popen[str], cluster: Cluster, out: Path) -> Iterator[ResourceSample]:
    """Yield a sample at the first trial and after each hundred, printing a table row for each."""
    due, previous = 1, None
    while command.poll() is None:
        trials = count_finished_trials(out / "trials")
        if trials >= due:
            sample = sample_resources(trials, command.pid, cluster.head_pid, out)
            if previous:
                count = sample.trials - previous.trials
                command_ms = (sample.command_cpu_seconds - previous.command_cpu_seconds) / count * 1000
                ray_ms = (sample.ray_cpu_seconds - previous.ray_cpu_seconds) / count * 1000
                sizes = f"{sample.command_mib:.1f} | {sample.gcs_mib:.1f} | {sample.ray_mib:.1f} | {sample.files:,}"
                print(f"| {sample.trials:,} | {command_ms:.1f} | {ray_ms:.1f} | {sizes} |", flush=True)
            yield sample
            previous, due = sample, trials // TRIALS_PER_ROW * TRIALS_PER_ROW + TRIALS_PER_ROW
        time.sleep(0.1)


def count_finished_trials(folder: Path) -> int:
    """Return the number of trials that have written a record file."""
    try:
        return sum(name.endswith(".json") and not name.startswith(".") for name in os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        return 0


def sample_resources(trials: int, command: int, head: int, out: Path) -> ResourceSample:
    """Sample the process trees of the command and of Ray."""
    ray = list_descendants(head)
    gcs = sum(read_private_mib(pid) for pid, command_line in ray.items() if "gcs_server" in command_line)
    return ResourceSample(
        trials=trials,
        command_cpu_seconds=sum(map(read_cpu_seconds, find_process_tree(command))),
        ray_cpu_seconds=sum(map(read_cpu_seconds, find_process_tree(head))),
        command_mib=sum(read_private_mib(process.pid) for process in find_process_tree(command)),
        gcs_mib=gcs,
        ray_mib=sum(map(read_private_mib, ray)),
        files=sum(len(files) for _, _, files in os.walk(out)),
    )


def read_cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and of its ended children."""
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return times.user + times.system + times.children_user + times.children_system
    return 0.0


if __name__ == "__main__":
    main()
