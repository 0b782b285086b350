"""The curve over hosts in miniature: python -m benchmarks.network_plans

Hosts are network namespaces whose links have the rate that `tc` was told, so what a sweep finds can be held against
what is so: rate and delay of the links, step times on more hosts than were measured, the plan that slow links call for.
"""

import argparse
import json
import math
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from equipoise.planning.measurements import read_exchange_times, read_step_times
from equipoise.planning.step_time_fit import fit_step_time
from equipoise.planning.step_time_model import StepSettings
from equipoise.runs.folder import read_record
from tests.network.hosts import Host, lan
from tests.network.spread_workers import Spread, spread

SLOW, FAST = 200.0, 0.0  # Mbit/s; 0 for as fast as memory
WIDE, WIDER = "tests.network.wide_model:wide", "tests.network.wide_model:wider"
SEEDS = range(5)  # of the runs that confirm each plan


def main() -> None:
    """All of it, a paragraph each."""
    asked = argparse.ArgumentParser(prog="python -m benchmarks.network_plans", description=__doc__)
    asked.add_argument("--budget-seconds", default="60", help="of each sweep")
    budget = asked.parse_args().budget_seconds
    with TemporaryDirectory() as place:
        links(Path(place), budget)
        plans(Path(place), str(2.5 * float(budget)))


def links(place: Path, budget: str) -> None:
    """A sweep over 1, 2 and 4 hosts: what it finds of the links, and what two hosts tell of four."""
    with lan(5, SLOW) as hosts, spread(hosts) as ray:
        delays = [delay(ray, *hosts[1:3])]
        facts = swept(ray, place / "four", WIDE, budget, "--workers", "1", "2", "4", "--batch-size", "4:64")
        delays.append(delay(ray, *hosts[1:3]))
    link = facts["system"]["links"]["between"]
    found, alpha = 8e-6 * link["bytes_a_second"]["value"], link["alpha_seconds"]["value"]
    print(f"rate of the links: {found:.1f} Mbit/s found, {SLOW:.0f} set, {found / SLOW - 1:+.1%}")
    there = ", ".join(f"{1e3 * one:.3f}" for one in delays)
    ratio = alpha / math.sqrt(math.prod(delays))
    print(f"delay: {1e3 * alpha:.3f} ms found, a ping-pong before and after took {there} ms, {ratio - 1:+.1%}")
    rows = read_step_times(place / "four" / "system.csv")
    exchanges = read_exchange_times(place / "four" / "exchange.csv", rows)
    few = fit_step_time(rows[rows.nodes <= 2], exchanges[exchanges.nodes <= 2])
    four = rows[rows.nodes == 4]
    off = few.fitted_seconds(StepSettings.from_table(four)) / four.seconds.to_numpy() - 1
    told = ", ".join(f"{one:+.1%} at {batch:.0f}" for one, batch in zip(off, four.batch, strict=True))
    print(f"step time on 4 hosts, predicted from 1 and 2, over measured: {told}; {np.abs(off).max():.1%} at most")


def plans(place: Path, budget: str) -> None:
    """The same sweep of two hosts on fast links and on slow ones, and both plans run on both, in turns."""
    found: dict[float, dict[str, Any]] = {}
    for rate in (FAST, SLOW):
        with lan(3, rate) as hosts, spread(hosts) as ray:
            found[rate] = swept(ray, place / f"{rate:.0f}", WIDER, budget, "--workers", "2", "--batch-size", "4:512")
    print_predictions(found)
    for rate in (FAST, SLOW):
        with lan(3, rate) as hosts, spread(hosts) as ray:
            seen = [{plan: trained(ray, place, found[plan]["plan"], rate, seed) for plan in found} for seed in SEEDS]
        options = {one["global_batch"]: one for one in found[rate]["options"]}
        for plan in found:
            said, batch = options[found[plan]["plan"]["global_batch"]], found[plan]["plan"]["global_batch"]
            took, steps = (median(one[plan][k] for one in seen) for k in (0, 1))
            predicted = said["seconds"]["value"], said["examples"] / batch
            print(
                f"{called(rate)}, plan of {called(plan)}: {took:.2f} s to the target in {steps:.1f} steps of"
                f" {1e3 * median(one[plan][0] / one[plan][1] for one in seen):.1f} "
                f"ms; predicted {predicted[0]:.2f} s in"
                f" {predicted[1]:.1f} steps of {1e3 * predicted[0] / predicted[1]:.1f} ms"
            )
        other = SLOW if rate == FAST else FAST
        ratio = median(one[other][0] / one[rate][0] for one in seen)
        print(f"{called(rate)}: the other links' plan takes {ratio:.2f} times as long, median of {len(seen)} seeds")


def called(rate: float) -> str:
    """Links in words."""
    return f"links of {rate:.0f} Mbit/s" if rate else "links as fast as memory"


def print_predictions(found: dict[float, dict[str, Any]]) -> None:
    """What the closed form makes of the fast links' sweep and the slow links' rate: sqrt((a + T2) n Bc / c)."""
    critical = found[FAST]["statistical"]["critical_batch"]
    for rate, facts in found.items():
        known = found[FAST]["system"]["parameters"]
        link = facts["system"]["parameters"]
        exchange = known["a"] + 2 * link.get("between_alpha", 0.0) + link["between_volume"]  # a ring of two
        best = math.sqrt(exchange * 2 * critical["value"] / known["c"]) if critical else math.nan
        plan = facts["plan"]
        print(
            f"{called(rate)}: the plan is a global batch of {plan['global_batch']} at lr {plan['lr']:.3g},"
            f" the closed form says {best:.0f}"
        )


def swept(ray: Spread, out: Path, workload: str, budget: str, *words: str) -> dict[str, Any]:
    """The plan of a sweep."""
    asked = ("jobs.sweep", "--workload", workload, "--budget-seconds", budget, *words, "--out", str(out))
    done = ray.run(sys.executable, "-m", *asked, timeout=900)
    if not (out / "plan.json").exists():
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    found: dict[str, Any] = json.loads((out / "plan.json").read_text())
    return found


def trained(ray: Spread, place: Path, plan: dict[str, Any], rate: float, seed: int) -> tuple[float, float]:
    """Seconds and steps to the target of a run with a plan."""
    out = place / f"run-{rate:.0f}-{plan['global_batch']}-{seed}"
    words = ("--workers", plan["workers"], "--batch-size", plan["batch"], "--lr", plan["lr"], "--seed", 2000 + seed)
    asked = ("jobs.train", "--workload", WIDER, *words, "--out", out)
    done = ray.run(sys.executable, "-m", *map(str, asked), timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    record = read_record(out / "record.json")
    seen = record.examples_to_target or math.inf
    return record.seconds * seen / record.laps[-1].seen, seen / plan["global_batch"]


def delay(ray: Spread, one: Host, other: Host) -> float:
    """Seconds of half a ping-pong between two hosts, in a program of its own."""
    words = (sys.executable, "-m", "tests.network.ping_pong")
    first = ray.start(*words, "0", one.address, host=one)
    ray.start(*words, "1", one.address, host=other)
    said, _ = first.communicate(timeout=120)
    return float(said.split()[-1])


if __name__ == "__main__":
    main()
