"""A parameter store beside one of Ray actors, and beside the sum of all workers: python -m benchmarks.parameter_store.

Hosts are network namespaces with a worker each. In every round each contestant takes the same number of steps of the
same model with the same batch, in turn, so that ratios are taken within a round. Bytes are those that the kernel counts
on the network interfaces of all hosts; the one server of a store is beside the first worker.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from benchmarks.training_case import LR, MOMENTUM, SEED
from equipoise.formatting import format_bytes, pluralize
from equipoise.hardware import describe_hardware
from tests.network.gloo_hosts import run_on_hosts
from tests.network.hosts import create_lan
from tests.network.spread_workers import SpreadCluster, start_spread_cluster

MAX_SECONDS = 600.0  # of a contestant in a round
SYNCHRONOUS_PEER, ASYNCHRONOUS_PEER = "Ray actors, synchronous", "Ray actors, asynchronous"
Options = dict[str, Any]  # of a run that are not those of all


class BenchmarkSetting(NamedTuple):
    """What all contestants train, on links of which rate and hosts with which part of a core; 0 for no limit."""

    workload: str
    workers: int
    batch: int
    steps: int
    megabits: float
    cores: float


class RoundFigures(NamedTuple):
    """Figures of a step, as one contestant took them in one round."""

    seconds: float
    largest_sent_bytes: float
    """bytes out of the host that sends most"""
    mean_sent_bytes: float


def main() -> None:
    """Run all rounds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parameter_store", description=__doc__)
    parser.add_argument("--workload", default="tests.network.wide_model:wider")
    parser.add_argument("--workers", type=int, default=2, help="hosts, with a worker each")
    parser.add_argument("--batch-size", type=int, default=32, help="examples per worker and step")
    parser.add_argument("--steps", type=int, default=50, help="steps timed, after as many that are not; at most 100")
    parser.add_argument("--megabits", type=float, default=0.0, help="rate of the links; 0 for as fast as memory")
    parser.add_argument("--cores", type=float, default=0.0, help="CPU quota of each host, on a machine with other work")
    parser.add_argument("--staleness", type=int, default=4, help="bound of the asynchronous store")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="contestants; all by default")
    options = parser.parse_args()
    limits = options.megabits, options.cores
    setting = BenchmarkSetting(options.workload, options.workers, options.batch_size, options.steps, *limits)
    contestants = list_contestants(options.staleness)
    if unknown := set(options.only or ()) - set(contestants):
        parser.error(f"unknown contestant {', '.join(sorted(unknown))}; choose from {', '.join(contestants)}")
    names = options.only or [*contestants]
    print(describe_hardware(torch.device("cpu")))
    print(f"{describe_benchmark(setting)}; load {os.getloadavg()[0]:.2f} before", flush=True)
    figures = run_rounds(setting, {name: contestants[name] for name in names}, options.rounds)
    print(f"load {os.getloadavg()[0]:.2f} after\n\n{format_table(figures)}")


def list_contestants(staleness: int) -> dict[str, Options | None]:
    """Return the options of each of our contestants, and None for its peers."""
    bounded = f"async:{staleness}"
    return {
        SYNCHRONOUS_PEER: None,
        "--sync server --servers 1": {"sync": "server", "servers": 1},
        "--sync server": {"sync": "server"},
        "--sync step": {},
        ASYNCHRONOUS_PEER: None,
        f"--sync {bounded} --servers 1": {"sync": bounded, "servers": 1},
        f"--sync {bounded}": {"sync": bounded},
    }


def run_rounds(
    setting: BenchmarkSetting, contestants: dict[str, Options | None], count: int
) -> dict[str, list[RoundFigures]]:
    """Return the figures of each contestant in each round."""
    figures: dict[str, list[RoundFigures]] = {name: [] for name in contestants}
    with create_lan(setting.workers + 1, setting.megabits) as hosts, start_spread_cluster(hosts) as ray:
        for host in hosts[1:] if setting.cores else []:
            host.limit_cpu(setting.cores)
        for _ in range(count):
            for name, options in contestants.items():
                if options is None:
                    row = run_peer(ray, setting, is_asynchronous=name == ASYNCHRONOUS_PEER)
                else:
                    row = run_ours(ray, setting, options)
                figures[name].append(row)
                print(f"{name}: {1e3 * row.seconds:.2f} ms, {format_bytes(row.largest_sent_bytes)}", flush=True)
    return figures


def run_peer(ray: SpreadCluster, setting: BenchmarkSetting, is_asynchronous: bool) -> RoundFigures:
    """Run the store of Ray actors; its program starts no worker on the first host, which has no slots."""
    numbers = ("--workers", setting.workers, "--batch-size", setting.batch, "--steps", setting.steps)
    flags = ("--asynchronous",) if is_asynchronous else ()
    command = ("benchmarks.ray_parameter_server", setting.workload, *map(str, numbers), *flags)
    process = ray.run(sys.executable, "-m", *command, timeout=MAX_SECONDS)
    if process.returncode:
        raise RuntimeError(process.stderr[-2000:])
    result = json.loads(process.stdout.splitlines()[-1])
    return RoundFigures(result["seconds"], max(result["sent_bytes"]), statistics.mean(result["sent_bytes"]))


def run_ours(ray: SpreadCluster, setting: BenchmarkSetting, options: Options) -> RoundFigures:
    """Run our training loop on the same hosts."""
    common = {"workload": setting.workload, "batch_size": setting.batch, "lr": LR, "momentum": MOMENTUM, "seed": SEED}
    function = "tests.network.store_steps:measure_steps"
    rows = run_on_hosts(ray.hosts[1:], function, common | options, setting.steps, timeout=MAX_SECONDS)
    sent = [row["counted_bytes"] for row in rows]
    return RoundFigures(rows[0]["seconds"], max(sent), statistics.mean(sent))


def describe_benchmark(setting: BenchmarkSetting) -> str:
    """Describe in words what is trained, and where."""
    links = f"links of {setting.megabits:.0f} Mbit/s" if setting.megabits else "links as fast as memory"
    cores = f" and {setting.cores:g} cores each" if setting.cores else ""
    hosts = f"{pluralize(setting.workers, 'host')} x {setting.batch} examples a step"
    return f"{setting.workload}, {hosts}, {links}{cores}"


def format_table(figures: dict[str, list[RoundFigures]]) -> str:
    """Format medians, and how many times as long as each contestant its peer took."""
    lines = [
        "| contestant | ms a step | sent by the busiest host | by the mean host | Ray actors / it | lowest | highest |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, rows in figures.items():
        seconds, largest, mean = (statistics.median(column) for column in zip(*rows, strict=True))
        peer = ASYNCHRONOUS_PEER if "async" in name else SYNCHRONOUS_PEER
        ratios = format_ratios(figures[peer], rows) if peer in figures else "- | - | -"
        lines.append(f"| {name} | {1e3 * seconds:.2f} | {format_bytes(largest)} | {format_bytes(mean)} | {ratios} |")
    return "\n".join(lines)


def format_ratios(over: Sequence[RoundFigures], under: Sequence[RoundFigures]) -> str:
    """Format the median, the lowest and the highest ratio of seconds over the rounds."""
    ratios = [a.seconds / b.seconds for a, b in zip(over, under, strict=True)]
    return " | ".join(f"{ratio:.2f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios)))


if __name__ == "__main__":
    main()
