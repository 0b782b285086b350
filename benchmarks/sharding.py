"""Steps of models in parts between hosts, beside their closed forms: python -m benchmarks.sharding.

Hosts are network namespaces with a worker each. On every number of hosts and rate of the links all ways of sharding
take turns in one process group. Seconds are predicted in every round, from passes without an exchange and from
exchanges by pairs of workers, all pairs at once, as hosts share the cores of this machine; bytes are those that the
kernel counts on each host, those of the laps and those of closed forms. With `--bubbles` it measures how long stages of
a pipeline wait instead; with `--peers` our steps and those of loops by hand around DDP and `fully_shard` of torch.
"""

import argparse
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch

from equipoise.formatting import format_bytes
from equipoise.hardware import describe_hardware
from equipoise.planning.exchanges.algorithm_times import fit_link
from equipoise.planning.exchanges.exchange_time import LevelCost, all_reduce_cost
from equipoise.planning.sharding.step_seconds import (
    ExchangeLinks,
    LinkTimes,
    WorkerTimes,
    bucketed_step_seconds,
    full_step_seconds,
    gather_cost,
    optimizer_step_seconds,
    pipeline_bubble,
    pipeline_step_seconds,
    ring_seconds,
    tensor_step_seconds,
)
from equipoise.registries.sharding_registry import parse_sharding
from tests.network.gloo_hosts import run_on_hosts
from tests.network.hosts import Host, create_lan

MODULE, MEASURE_MODEL = "benchmarks.sharded_steps", "benchmarks.sharded_model_facts:measure_model"
MODELS = "gpt", "mlp", "sleeping_mlp"
SHARDINGS = {
    2: ("none", "optimizer", "full", "tensor:2", "pipeline:2"),
    4: ("none", "optimizer", "full", "full:2", "tensor:2", "tensor:4", "pipeline:2", "pipeline:4"),
}
PEERS = "none", "DDP", "full", "fully_shard"
BURST_KILOBYTES = 32  # of the token bucket: a large one hides messages of its size
BUBBLE_ACCUMULATIONS = 2, 4, 8
MAX_SECONDS = 600.0


class Prediction(NamedTuple):
    """Closed forms of a case: seconds of a step, and mean bytes out of a host."""

    seconds: float
    sent_bytes: float


def main() -> None:
    """Measure all cases and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharding", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--hosts", nargs="+", type=int, default=[2, 4], choices=[2, 4])
    parser.add_argument("--megabits", nargs="+", type=float, default=[200.0, 0.0], help="0 for as fast as memory")
    parser.add_argument("--grad-accumulation", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="steps of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--bubbles", action="store_true")
    options = parser.parse_args()
    print(describe_hardware(torch.device("cpu")))
    for model in options.models:
        if options.bubbles:
            print_bubbles(model, options.steps * options.rounds)
            continue
        with create_hosts(1, 0.0) as hosts:
            facts = run_on_hosts(hosts, MEASURE_MODEL, model, [2, 4])[0]
        print_model(model, facts)
        for megabits in options.megabits:
            for count in sorted(options.hosts):
                shardings = PEERS if options.peers else SHARDINGS[count]
                with create_hosts(count, megabits) as hosts:
                    turns = options.grad_accumulation, options.steps, options.rounds
                    before = os.getloadavg()[0]
                    by_host = run(hosts, "time_turns", model, shardings, *turns)
                rate = f"{megabits:g} Mbit/s" if megabits else "memory speed"
                print(f"\n{model}, {count} hosts, {rate}; load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
                figures = [figures for figures, _ in by_host]
                predictors = [Predictor(facts, turn, count, options.grad_accumulation) for turn in by_host[0][1]]
                if options.peers:
                    print_ratios(figures, shardings)
                else:
                    print_calibration(predictors)
                    print_figures(figures, predictors, shardings)


@contextmanager
def create_hosts(count: int, megabits: float) -> Iterator[list[Host]]:
    """Create hosts that come before all other work on this machine, each with one core where there are as many."""
    with create_lan(count) as hosts:
        for host in hosts:
            if megabits:
                host.set_rate(megabits, BURST_KILOBYTES)
            host.limit_cpu(1.0)
        yield hosts


def run(hosts: list[Host], function: str, *arguments: Any) -> list[Any]:
    """Call a function of the workers' module on each host."""
    return run_on_hosts(hosts, f"{MODULE}:{function}", *arguments, timeout=MAX_SECONDS)


class Predictor:
    """Closed forms for one model on so many hosts, by what pairs of workers measured in one round."""

    def __init__(self, facts: dict[str, Any], turn: dict[str, Any], workers: int, accumulation: int) -> None:
        self.facts, self.workers, self.accumulation = facts, workers, accumulation
        self.worker = WorkerTimes(turn["forward"], turn["passes"] - turn["forward"], turn["update"])
        self.copy_seconds = max(0.0, turn["divided_passes"] - turn["passes"])
        self.links = {name: fit_exchanges(name, sums) for name, sums in turn["exchanges"].items()}
        self.links["ring"] = split_start(self.links["ring"], turn["message"])
        self.link = self.links["ring"]
        self.exchange_links = ExchangeLinks(**self.links)
        self.buckets: list[int] = facts["bucket_bytes"]
        self.total = sum(self.buckets)

    def __call__(self, sharding: str) -> Prediction:
        """Return the closed forms of a way of sharding."""
        method = parse_sharding(sharding)
        forms: dict[str, Callable[[int], Prediction]] = {
            "none": self.predict_none,
            "optimizer": self.predict_optimizer,
            "full": self.predict_full,
            "tensor": self.predict_tensor,
            "pipeline": self.predict_pipeline,
        }
        return forms[method.kind](method.group_size or self.workers)

    def predict_none(self, parts: int) -> Prediction:
        """Predict whole replicas."""
        seconds = bucketed_step_seconds(self.worker, self.buckets, self.workers, self.accumulation, self.link)
        return Prediction(seconds, ring_bytes(self.workers, self.total))

    def predict_optimizer(self, _: int) -> Prediction:
        """Predict a part of the optimizer's state on each worker."""
        parts = self.facts["part_bytes"][str(self.workers)]
        seconds = optimizer_step_seconds(self.worker, self.buckets, parts, self.accumulation, self.exchange_links)
        weights = (self.workers - 1) / self.workers * self.total
        return Prediction(seconds, ring_bytes(self.workers, self.total) + weights)

    def predict_full(self, parts: int) -> Prediction:
        """Predict a part of every weight on each worker."""
        units, replicas = self.facts["unit_bytes"], self.workers // parts
        seconds = full_step_seconds(
            self.worker, units, parts, self.accumulation, self.exchange_links, replicas, self.copy_seconds
        )
        sent = 3 * self.accumulation * gather_cost(parts, units).serial_bytes  # two gathers and a sum
        return Prediction(seconds, sent + ring_bytes(replicas, self.total / parts))

    def predict_tensor(self, parts: int) -> Prediction:
        """Predict a part of the large layers on each worker."""
        share, sums, micros = self.facts["divided_share"], self.facts["sum_bytes"], self.accumulation * parts
        replicas, kept = self.workers // parts, 1 - share + share / parts
        part = WorkerTimes(*(kept * seconds for seconds in self.worker))
        buckets = [kept * size for size in self.buckets]
        exposed = bucketed_step_seconds(part, buckets, replicas, 1, self.link) - part.passes - part.update
        seconds = tensor_step_seconds(self.worker, share, sums, parts, micros, self.link, exposed)
        sent = micros * sum(ring_bytes(parts, size) for size in sums)
        return Prediction(seconds, sent + ring_bytes(replicas, sum(buckets)))

    def predict_pipeline(self, parts: int) -> Prediction:
        """Predict a stage on each worker."""
        stages, micros = self.facts["stages"][str(parts)], self.accumulation * parts
        replicas, shares, boundaries = self.workers // parts, stages["shares"], stages["boundary_bytes"]
        holders = 2 if stages["tied_bytes"] else 1
        summed = ring_seconds(replicas, max(shares) * self.total, self.link)
        seconds = pipeline_step_seconds(
            [share * self.worker.passes for share in shares],
            boundaries,
            micros,
            self.link,
            update=max(shares) * self.worker.update,
            sum_seconds=summed + ring_seconds(holders, stages["tied_bytes"], self.link),
        )
        sent = 2 * micros * sum(boundaries) + holders * ring_bytes(holders, stages["tied_bytes"])
        over_replicas = parts * ring_bytes(replicas, (self.total + stages["tied_bytes"]) / parts)
        return Prediction(seconds, (sent + over_replicas) / parts)


def fit_exchanges(name: str, sums: Sequence[tuple[int, float]]) -> LinkTimes:
    """Return the link of a kind of exchange, from those of several sizes between two workers."""
    costs: dict[str, Callable[[int], LevelCost]] = {
        "ring": lambda size: all_reduce_cost("ring", 2, size).local,
        "gather": lambda size: gather_cost(2, [size]),
        "scatter": lambda size: gather_cost(2, [size]),
    }
    alpha, beta = fit_link([costs[name](size) for size, _ in sums], np.array([seconds for _, seconds in sums]))
    return LinkTimes(alpha, beta or 0.0)


def split_start(ring: LinkTimes, message: float) -> LinkTimes:
    """Return the link of rings with what a sum takes before its messages, of which each of two workers sends two."""
    alpha = min(ring.alpha, message)
    return LinkTimes(alpha, ring.beta, start=2 * (ring.alpha - alpha))


def ring_bytes(workers: int, size: float) -> float:
    """Return the bytes that leave a worker in a sum of so many bytes."""
    return all_reduce_cost("ring", workers, size).mean_sent_bytes


def print_model(model: str, facts: dict[str, Any]) -> None:
    """Print the weights and the stages of a model."""
    print(f"\n{model}: {format_bytes(sum(facts['bucket_bytes']))} of weights")
    for count, stages in facts["stages"].items():
        print(f"  {count} stages: shares {[round(share, 3) for share in stages['shares']]}", flush=True)


def print_calibration(predictors: Sequence[Predictor]) -> None:
    """Print medians of what predicts steps."""
    columns = [(*predictor.worker, predictor.copy_seconds) for predictor in predictors]
    medians = [1e3 * statistics.median(column) for column in zip(*columns, strict=True)]
    print("forward {:.1f} ms, backward {:.1f} ms, update {:.2f} ms, copies of full {:.1f} ms".format(*medians), end="")
    for name in predictors[0].links:
        columns = zip(*(predictor.links[name] for predictor in predictors), strict=True)
        alpha, beta, start = (statistics.median(column) for column in columns)
        print(
            f"; {name} {1e3 * alpha:.2f} ms, {8e-6 / max(beta, 1e-12):.0f} Mbit/s, start {1e3 * start:.2f} ms", end=""
        )
    print()


def list_turns(by_host: Sequence[dict[str, Any]], name: str) -> list[float]:
    """Return the seconds of a step on the slowest worker in each turn."""
    return [max(values) for values in zip(*(figures[name]["seconds"] for figures in by_host), strict=True)]


def print_figures(by_host: Sequence[dict[str, Any]], predictors: Sequence[Predictor], names: Sequence[str]) -> None:
    """Print a row for each way of sharding; its error is the median over rounds, of what the round itself predicts."""
    columns = (
        "ms a step",
        "predicted",
        "error",
        "lowest",
        "highest",
        "CPU ms",
        "kernel",
        "lap's most",
        "form",
        "peak MB",
    )
    print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    for name in names:
        rows, turns = [figures[name] for figures in by_host], list_turns(by_host, name)
        forms = [predict(name) for predict in predictors]
        errors = [form.seconds / seconds - 1 for form, seconds in zip(forms, turns, strict=True)]
        counted = statistics.mean(min(row["counted_bytes"]) for row in rows)
        times = statistics.median(turns), statistics.median(form.seconds for form in forms)
        cells = [f"{1e3 * seconds:.1f}" for seconds in times]
        cells += [f"{100 * error:+.0f} %" for error in (statistics.median(errors), min(errors), max(errors))]
        cells.append(f"{1e3 * max(statistics.median(row['cpu_seconds']) for row in rows):.0f}")
        cells += [f"{counted:.0f}", str(rows[0]["recorded_bytes"]), f"{forms[0].sent_bytes:.0f}"]
        print(f"| {name} | {' | '.join(cells)} | {max(row['peak_bytes'] for row in rows) / 1e6:.2f} |", flush=True)


def print_ratios(by_host: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """Print a row for each contestant, with its seconds over those of the one before, round by round."""
    columns = "ms a step", "CPU ms", "kernel's bytes", "/ the one before", "lowest", "highest"
    print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
    before: list[float] = []
    for name in names:
        rows, turns = [figures[name] for figures in by_host], list_turns(by_host, name)
        ratios = [own / other for own, other in zip(turns, before or turns, strict=True)]
        cpu = max(statistics.median(row["cpu_seconds"]) for row in rows)
        counted = statistics.mean(min(row["counted_bytes"]) for row in rows)
        cells = [f"{1e3 * statistics.median(turns):.1f}", f"{1e3 * cpu:.1f}", f"{counted:.0f}"]
        cells += [f"{summarize(ratios):.3f}" for summarize in (statistics.median, min, max)]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        before = turns


def print_bubbles(model: str, steps: int) -> None:
    """Print the waits of two stages beside those of equal stages; a step lasts as long as on the first one."""
    with create_hosts(2, 0.0) as hosts:
        by_host = run(hosts, "measure_bubbles", model, BUBBLE_ACCUMULATIONS, steps)
    print(f"\n{model}, 2 stages on 2 hosts; load {os.getloadavg()[0]:.1f} after")
    print(
        "| micro-batches | of the first stage | of the last stage | mean | (S - 1)/(M + S - 1) |\n|--:|--:|--:|--:|--:|"
    )
    for micros in by_host[0]:
        steps = zip(*(seconds[micros] for seconds in by_host), strict=True)
        waits_by_step = [[1 - computing / max(stages)[0] for _, computing in stages] for stages in steps]
        first, last = (statistics.median(column) for column in zip(*waits_by_step, strict=True))
        waits = first, last, (first + last) / 2, pipeline_bubble(2, int(micros))
        print(f"| {micros} | {' | '.join(f'{wait:.3f}' for wait in waits)} |", flush=True)


if __name__ == "__main__":
    main()
