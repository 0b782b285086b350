"""Ways of exchange that sweeps choose: python -m benchmarks.exchange_plans.

Between two hosts with slow links, each of several sweeps is followed by runs of its plan and of its best plan with
exact sums, in turns. With links as fast as memory a sweep should add no trials and keep exact sums.
"""

import argparse
import math
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory

from equipoise.planning.document import PlanDocument, PlanEntry
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.training_options import find_exchange_options
from equipoise.runs.folder import read_record
from tests.network.hosts import create_lan
from tests.network.spread_workers import SpreadCluster, start_spread_cluster

SLOW_MBIT, FAST_MBIT = 200.0, 0.0  # 0 for links as fast as memory
SLOW_WORKLOAD = "tests.network.wide_model:wider"
RUN_SEED = 2000  # of the runs of plans: above the seeds of all trials and confirmation runs
MAX_SECONDS = 1800.0  # of a sweep and of a run


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What a sweep chose, and how long its plan took beside the best one with exact sums."""

    document: PlanDocument
    sweep_seconds: float
    added_trials: int
    """trials with other ways of exchange than exact sums"""
    plan_seconds: float
    exact_seconds: float

    @property
    def speedup(self) -> float:
        """Seconds of the plan with exact sums over those of the sweep's plan."""
        return self.exact_seconds / self.plan_seconds


def main() -> None:
    """Run the sweeps and print what they chose."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange_plans", description=__doc__)
    parser.add_argument("--budget-seconds", default="240", help="budget of each sweep in seconds")
    parser.add_argument("--seeds", type=int, default=5, help="sweeps on slow links")
    parser.add_argument("--fast-sweeps", type=int, default=10, help="sweeps on links as fast as memory")
    parser.add_argument("--fast-workload", default=SLOW_WORKLOAD, help="workload of the sweeps on fast links")
    parser.add_argument("--workers", nargs="+", default=["2"], help="numbers of workers; one alone needs no network")
    parser.add_argument("--batch-size", default="16:256", help="batch sizes of the sweeps")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each plan")
    parser.add_argument("--first-seed", type=int, default=0, help="number of the first sweep, to go on with others")
    parser.add_argument("--keep", type=Path, help="folder to keep the sweeps and what they printed in")
    options = parser.parse_args()
    for rate, count, workload in (
        (SLOW_MBIT, options.seeds, SLOW_WORKLOAD),
        (FAST_MBIT, options.fast_sweeps, options.fast_workload),
    ):
        results = []
        for seed in range(options.first_seed, options.first_seed + count):
            with TemporaryDirectory() as temporary:
                folder = options.keep / f"{rate:.0f}-{seed}" if options.keep else temporary
                limits = ("--budget-seconds", options.budget_seconds, "--batch-size", options.batch_size)
                flags = ("--workers", *options.workers, *limits)
                results.append(measure_sweep(Path(folder).absolute(), workload, rate, seed, flags, options.repeats))
            print(f"{describe_links(rate)}, seed {seed}: {describe_result(results[-1])}", flush=True)
        if results:
            print(f"{describe_links(rate)}: {summarize_sweeps(results)}", flush=True)


def measure_sweep(
    folder: Path, workload: str, rate: float, seed: int, flags: tuple[str, ...], repeats: int
) -> SweepResult:
    """Run a sweep, then its plan and its best plan with exact sums in turns."""
    with create_lan(3, rate) as hosts, start_spread_cluster(hosts) as ray:
        start = time.monotonic()
        document = run_sweep(ray, folder / "sweep", workload, "--seed", str(3000 * seed), *flags)
        sweep_seconds = time.monotonic() - start
        plans = {"plan": document.plan, "exact": find_exact_plan(document)}
        same = plans["plan"] == plans["exact"]
        seconds: dict[str, list[float]] = {name: [] for name in plans}
        for repeat in range(repeats):
            for name, plan in plans.items():
                if name == "plan" or not same:
                    out = folder / f"{name}-{repeat}"
                    seconds[name].append(run_plan(ray, out, workload, plan, RUN_SEED + 3000 * seed + repeat))
    own = median(seconds["plan"])
    return SweepResult(
        document=document,
        sweep_seconds=sweep_seconds,
        added_trials=len([*(folder / "sweep" / "trials" / "exchanges").glob("*.json")]),
        plan_seconds=own,
        exact_seconds=own if same else median(seconds["exact"]),
    )


def find_exact_plan(document: PlanDocument) -> PlanEntry:
    """Return the best plan with exact sums: the plan, or the one beside it."""
    plan = document.runner_up if document.plan and document.plan.exchange else document.plan
    if plan is None:
        raise RuntimeError("; ".join(document.warnings))
    return plan


def run_sweep(ray: SpreadCluster, out: Path, workload: str, *flags: str) -> PlanDocument:
    """Run a sweep and return its plan document."""
    command = ("jobs.sweep", "--workload", workload, *flags, "--out", str(out))
    process = ray.run(sys.executable, "-m", *command, timeout=MAX_SECONDS)
    if not (out / "plan.json").exists():
        raise RuntimeError(process.stdout[-2000:] + process.stderr[-2000:])
    out.with_name("output.txt").write_text(process.stdout)
    return PlanDocument.read(out / "plan.json")


def run_plan(ray: SpreadCluster, out: Path, workload: str, plan: PlanEntry, seed: int) -> float:
    """Train with a plan and return the seconds to the target; infinite if the run missed it."""
    options = find_exchange_options(parse_exchange(plan.exchange), f"cannot train with {plan.exchange}")
    flags: list[object] = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    flags += [] if plan.momentum is None else ["--momentum", plan.momentum]
    setting = ("--workers", plan.workers, "--batch-size", plan.batch, "--lr", plan.lr, "--seed", seed)
    command = ("jobs.train", "--workload", workload, *setting, *flags, "--out", out)
    process = ray.run(sys.executable, "-m", *map(str, command), timeout=MAX_SECONDS)
    if process.returncode:
        raise RuntimeError(process.stderr[-2000:])
    record = read_record(out / "record.json")
    return record.seconds * (record.examples_to_target or math.inf) / record.laps[-1].seen


def describe_links(rate: float) -> str:
    """Describe in words the links of a rate."""
    return f"links of {rate:.0f} Mbit/s" if rate else "links as fast as memory"


def describe_result(result: SweepResult) -> str:
    """Describe in a line what a sweep chose, and what it saved."""
    plan, exact = result.document.plan, find_exact_plan(result.document)
    if plan is None:
        raise RuntimeError("the sweep has no plan")
    text = (
        f"{plan.exchange or 'exact sums'}, {plan.workers} x {plan.batch} at lr {plan.lr:.3g}, {result.document.status}"
    )
    return (
        f"{text}: {result.plan_seconds:.2f} s to the target, predicted {plan.seconds.value:.2f} s"
        f" ({plan.seconds.low:.2f} to {plan.seconds.high:.2f}); exact sums, {exact.workers} x {exact.batch}:"
        f" {result.exact_seconds:.2f} s; {result.speedup:.2f} times as fast; {result.added_trials} added trials,"
        f" the sweep took {result.sweep_seconds:.0f} s"
    )


def summarize_sweeps(results: list[SweepResult]) -> str:
    """Summarize sweeps on the same links in a line."""
    others = [result for result in results if result.document.plan and result.document.plan.exchange]
    finite = [result.speedup for result in results if 0 < result.speedup < math.inf]
    mean = f"{geometric_mean(finite):.2f}" if finite else "-"
    return (
        f"{len(others)} of {len(results)} plans with another way of exchange; {mean} times as fast as exact sums in the"
        f" geometric mean of {len(finite)}; {sum(result.added_trials for result in results)} added trials"
    )


if __name__ == "__main__":
    main()
