"""Sweeps over several hosts in miniature: python -m benchmarks.network_plans.

Hosts are network namespaces whose links have the rate set with `tc`, so the results of a sweep can be compared with
known values: rate and delay of the links, step times on more hosts than were measured, the best plan for slow links.
"""

import argparse
import math
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from equipoise.planning.document import PlanDocument, PlanEntry
from equipoise.planning.measurements import read_exchange_times, read_step_times
from equipoise.planning.step_time_fit import fit_step_time
from equipoise.planning.step_time_model import StepSettings
from equipoise.runs.folder import read_record
from tests.network.hosts import Host, create_lan
from tests.network.spread_workers import SpreadCluster, start_spread_cluster

SLOW_MBIT, FAST_MBIT = 200.0, 0.0  # 0 for links as fast as memory
WIDE_WORKLOAD, WIDER_WORKLOAD = "tests.network.wide_model:wide", "tests.network.wide_model:wider"
CONFIRMATION_SEEDS = range(5)  # seeds of the runs that confirm each plan


def main() -> None:
    """Compare the links and the plans, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network_plans", description=__doc__)
    parser.add_argument("--budget-seconds", default="60", help="budget of each sweep in seconds")
    budget = parser.parse_args().budget_seconds
    with TemporaryDirectory() as folder:
        compare_links(Path(folder), budget)
        compare_plans(Path(folder), str(2.5 * float(budget)))


def compare_links(folder: Path, budget: str) -> None:
    """Print the links as measured by a sweep over 1, 2 and 4 hosts, and four hosts as predicted from two."""
    with create_lan(5, SLOW_MBIT) as hosts, start_spread_cluster(hosts) as ray:
        delays = [measure_delay_seconds(ray, *hosts[1:3])]
        plan_document = run_sweep(
            ray, folder / "four", WIDE_WORKLOAD, budget, "--workers", "1", "2", "4", "--batch-size", "4:64"
        )
        delays.append(measure_delay_seconds(ray, *hosts[1:3]))
    link = plan_document.system.links["between"]
    rate, alpha = 8e-6 * link.bytes_a_second.value, link.alpha_seconds.value
    print(f"rate of the links: {rate:.1f} Mbit/s measured, {SLOW_MBIT:.0f} set, {rate / SLOW_MBIT - 1:+.1%}")
    ping_pongs = ", ".join(f"{1e3 * seconds:.3f}" for seconds in delays)
    ratio = alpha / math.sqrt(math.prod(delays))
    print(f"delay: {1e3 * alpha:.3f} ms measured, a ping-pong before and after took {ping_pongs} ms, {ratio - 1:+.1%}")
    rows = read_step_times(folder / "four" / "system.csv")
    exchanges = read_exchange_times(folder / "four" / "exchange.csv", rows)
    fit = fit_step_time(rows[rows.nodes <= 2], exchanges[exchanges.nodes <= 2])
    four = rows[rows.nodes == 4]
    errors = fit.fitted_seconds(StepSettings.from_table(four)) / four.seconds.to_numpy() - 1
    by_batch = ", ".join(f"{error:+.1%} at {batch:.0f}" for error, batch in zip(errors, four.batch, strict=True))
    print(
        f"step time on 4 hosts, predicted from 1 and 2, over measured: {by_batch}; {np.abs(errors).max():.1%} at most"
    )


def compare_plans(folder: Path, budget: str) -> None:
    """Run the same sweep of two hosts on fast and on slow links, then run both plans on both, in turns."""
    plan_documents: dict[float, PlanDocument] = {}
    for rate in (FAST_MBIT, SLOW_MBIT):
        with create_lan(3, rate) as hosts, start_spread_cluster(hosts) as ray:
            plan_documents[rate] = run_sweep(
                ray, folder / f"{rate:.0f}", WIDER_WORKLOAD, budget, "--workers", "2", "--batch-size", "4:512"
            )
    print_closed_form(plan_documents)
    for rate in (FAST_MBIT, SLOW_MBIT):
        with create_lan(3, rate) as hosts, start_spread_cluster(hosts) as ray:
            runs = [
                {plan: run_training(ray, folder, plan_documents[plan].plan, rate, seed) for plan in plan_documents}
                for seed in CONFIRMATION_SEEDS
            ]
        options = {option.global_batch: option for option in plan_documents[rate].options}
        for plan in plan_documents:
            batch = plan_documents[plan].plan.global_batch
            option = options[batch]
            seconds, steps = (median(run[plan][k] for run in runs) for k in (0, 1))
            predicted = option.seconds.value, option.examples / batch
            print(
                f"{describe_links(rate)}, plan of {describe_links(plan)}: {seconds:.2f} s to the target"
                f" in {steps:.1f} steps of {1e3 * median(run[plan][0] / run[plan][1] for run in runs):.1f} ms;"
                f" predicted {predicted[0]:.2f} s in"
                f" {predicted[1]:.1f} steps of {1e3 * predicted[0] / predicted[1]:.1f} ms"
            )
        other = SLOW_MBIT if rate == FAST_MBIT else FAST_MBIT
        ratio = median(run[other][0] / run[rate][0] for run in runs)
        print(
            f"{describe_links(rate)}: the plan of the other links takes {ratio:.2f} times as long,"
            f" median of {len(runs)} seeds"
        )


def describe_links(rate: float) -> str:
    """Describe in words the links of a rate."""
    return f"links of {rate:.0f} Mbit/s" if rate else "links as fast as memory"


def print_closed_form(plan_documents: dict[float, PlanDocument]) -> None:
    """Print each plan beside the best batch by the closed form sqrt((a + T2) n Bc / c) of the sweep on fast links."""
    critical = plan_documents[FAST_MBIT].statistical.critical_batch
    for rate, document in plan_documents.items():
        parameters = plan_documents[FAST_MBIT].system.parameters
        link = document.system.parameters
        exchange = parameters["a"] + 2 * link.get("between_alpha", 0.0) + link["between_volume"]  # a ring of two hosts
        best = math.sqrt(exchange * 2 * critical.value / parameters["c"]) if critical else math.nan
        plan = document.plan
        print(
            f"{describe_links(rate)}: the plan is a global batch of {plan.global_batch} at lr {plan.lr:.3g},"
            f" the closed form gives {best:.0f}"
        )


def run_sweep(ray: SpreadCluster, out: Path, workload: str, budget: str, *flags: str) -> PlanDocument:
    """Run a sweep and return its plan document."""
    exact = ("--exchanges", "none")
    command = ("jobs.sweep", "--workload", workload, "--budget-seconds", budget, *exact, *flags, "--out", str(out))
    process = ray.run(sys.executable, "-m", *command, timeout=900)
    if not (out / "plan.json").exists():
        raise RuntimeError(process.stdout[-2000:] + process.stderr[-2000:])
    return PlanDocument.read(out / "plan.json")


def run_training(ray: SpreadCluster, folder: Path, plan: PlanEntry, rate: float, seed: int) -> tuple[float, float]:
    """Train with a plan and return the seconds and steps to the target."""
    out = folder / f"run-{rate:.0f}-{plan.global_batch}-{seed}"
    flags = ("--workers", plan.workers, "--batch-size", plan.batch, "--lr", plan.lr, "--seed", 2000 + seed)
    command = ("jobs.train", "--workload", WIDER_WORKLOAD, *flags, "--out", out)
    process = ray.run(sys.executable, "-m", *map(str, command), timeout=600)
    if process.returncode:
        raise RuntimeError(process.stderr[-2000:])
    record = read_record(out / "record.json")
    examples = record.examples_to_target or math.inf
    return record.seconds * examples / record.laps[-1].seen, examples / plan.global_batch


def measure_delay_seconds(ray: SpreadCluster, first_host: Host, second_host: Host) -> float:
    """Return the seconds of half a ping-pong between two hosts, measured by a separate program."""
    command = (sys.executable, "-m", "tests.network.ping_pong")
    first = ray.start(*command, "0", first_host.address, host=first_host)
    ray.start(*command, "1", first_host.address, host=second_host)
    output, _ = first.communicate(timeout=120)
    return float(output.split()[-1])


if __name__ == "__main__":
    main()
