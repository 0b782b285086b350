"""All-reduce algorithms between hosts: predicted on more hosts than were measured, and chosen by a table.

    python -m benchmarks.all_reduce_links [--seconds 75] [--out FILE | --samples FILE] [--quantile 0.5]

Hosts are network namespaces whose links have a rate and a delay: a process carries their packets. Every algorithm is
timed on 2, 3 and 4 of them. Seconds on 3 and 4 hosts are predicted by closed forms from those on 2. An algorithm is
chosen by the odd turns and judged by the even ones: by the table of what was timed on as many hosts, and by the closed
forms of 2 hosts.
"""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from equipoise.formatting import format_bytes
from equipoise.parallel.algorithm_choice import AlgorithmTiming, choose_algorithm
from equipoise.planning.exchanges.algorithm_times import AlgorithmLink, fit_link
from equipoise.planning.exchanges.closed_forms import closed_form_cost, predict_sum_seconds
from tests.network.delayed_lan import create_delayed_lan
from tests.network.gloo_hosts import run_on_hosts

MEGABITS = 200.0
DELAYS = 0.0001, 0.005  # seconds, one way
HOST_COUNTS = 2, 3, 4
SIZES = 1 << 16, 1 << 20, 1 << 22
BACKEND = "backend"
NEAR_BEST, NEAR_BACKEND = 1.05, 1.03

Turns = list[list[float]]


class SumCase(NamedTuple):
    """Sums of one size on so many hosts, whose links have this delay."""

    delay: float
    hosts: int
    size: int


class SumTurns:
    """Seconds of sums by case and algorithm, by turn."""

    def __init__(self, quantile: float = 0.5) -> None:
        self.quantile = quantile
        self.turns: dict[tuple[SumCase, str], Turns] = {}

    def add(self, delay: float, hosts: int, rows: Sequence[tuple[str, int, Turns]]) -> None:
        """Add what workers on these hosts have measured."""
        for name, size, turns in rows:
            self.turns[SumCase(delay, hosts, size), name] = turns

    def seconds_by_algorithm(self, case: SumCase, parity: int | None = None) -> dict[str, float]:
        """Return the seconds by algorithm, over all turns, or over the even (0) or odd ones (1) alone."""
        return {
            name: self.summarize(turns if parity is None else turns[parity::2])
            for (other, name), turns in self.turns.items()
            if other == case
        }

    def summarize(self, turns: Turns) -> float:
        """Return the quantile of all sums of these turns, their median by default."""
        return float(np.quantile(np.concatenate(turns), self.quantile))


def main() -> None:
    """Measure all cases and print what was predicted and chosen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.all_reduce_links", description=__doc__)
    parser.add_argument("--seconds", type=float, default=75.0, help="time for the sums on each number of hosts")
    parser.add_argument("--out", type=Path, help="file for the seconds of every sum, as JSON")
    parser.add_argument("--samples", type=Path, help="file of an earlier --out, instead of measuring")
    parser.add_argument(
        "--quantile", type=float, default=0.5, help="of the sums: low ones are disturbed least by others"
    )
    options = parser.parse_args()
    samples = SumTurns(options.quantile)
    if options.samples:
        for row in json.loads(options.samples.read_text()):
            samples.add(row["delay"], row["hosts"], [(row["algorithm"], row["size"], row["turns"])])
    else:
        measure_all(samples, options.seconds)
    if options.out:
        rows = [{**case._asdict(), "algorithm": name, "turns": turns} for (case, name), turns in samples.turns.items()]
        options.out.write_text(json.dumps(rows))
    print_figures(samples)


def measure_all(samples: SumTurns, seconds: float) -> None:
    """Time every algorithm on each number of hosts and with each delay."""
    for delay in DELAYS:
        for hosts in HOST_COUNTS:
            samples.add(delay, hosts, measure_sums(delay, hosts, seconds))


def measure_sums(delay: float, host_count: int, seconds: float) -> list[tuple[str, int, Turns]]:
    """Time every algorithm between hosts whose links have this delay, and print the load of the machine."""
    before = os.getloadavg()[0]
    with create_delayed_lan(host_count, delay, MEGABITS) as hosts:
        rows: list[Any] = run_on_hosts(hosts, "tests.network.host_sums:sample_all_sums", SIZES, seconds)[0]
    count = len(rows[0][2])
    print(
        f"{host_count} hosts, delay {1e3 * delay:g} ms: {count} turns of each sum; load {before:.2f} before,"
        f" {os.getloadavg()[0]:.2f} after",
        flush=True,
    )
    return [(name, size, turns) for name, size, turns in rows]


def print_figures(samples: SumTurns) -> None:
    """Print the errors of predictions, and what choices cost."""
    for delay in DELAYS:
        links = fit_two_hosts(samples, delay)
        print(f"\ndelay {1e3 * delay:g} ms: seconds a message and a byte of each algorithm on two hosts")
        for name, link in links.items():
            print(f"  {name:18} {1e3 * link.alpha:8.3f} ms  {8e-6 / link.beta if link.beta else np.nan:8.1f} Mbit/s")
        print_errors(samples, delay, links)
    print("\nalgorithm chosen, over the best measured one and over the backend's own sum")
    for source in ("table", "closed forms"):
        print_choices(samples, source)


def fit_two_hosts(samples: SumTurns, delay: float) -> dict[str, AlgorithmLink]:
    """Fit the link of each algorithm to the sums on two hosts."""
    by_size = {size: samples.seconds_by_algorithm(SumCase(delay, 2, size)) for size in SIZES}
    return {
        name: fit_link(
            [closed_form_cost(name, 2, 2, size) for size in SIZES], np.array([by_size[size][name] for size in SIZES])
        )
        for name in by_size[SIZES[0]]
    }


def predict_case(case: SumCase, links: Mapping[str, AlgorithmLink]) -> dict[str, float]:
    """Return the seconds of each algorithm that can run on so many hosts, by the closed forms of two."""
    runnable = [name for name in links if case.hosts != 3 or name not in ("doubling", "halving-doubling")]
    predicted = {name: predict_sum_seconds(links[name], name, case.hosts, case.hosts, case.size) for name in runnable}
    return {name: seconds for name, seconds in predicted.items() if seconds is not None}


def print_errors(samples: SumTurns, delay: float, links: Mapping[str, AlgorithmLink]) -> None:
    """Print the error of each predicted sum on three and four hosts."""
    limits = {size: 0.25 if size < 1 << 20 else 0.1 for size in SIZES}
    for hosts in HOST_COUNTS[1:]:
        for size in SIZES:
            case = SumCase(delay, hosts, size)
            measured, predicted = samples.seconds_by_algorithm(case), predict_case(case, links)
            errors = {name: predicted[name] / measured[name] - 1 for name in predicted}
            within = sum(abs(error) <= limits[size] for error in errors.values())
            texts = ", ".join(f"{name} {error:+.0%}" for name, error in errors.items())
            count = f"{within} of {len(errors)} within {limits[size]:.0%}"
            print(f"  {hosts} hosts, {format_bytes(size):>7}: {count}: {texts}")


def list_cases() -> Iterator[SumCase]:
    """Return all cases, those without a delay first."""
    return (SumCase(delay, hosts, size) for delay in DELAYS for hosts in HOST_COUNTS for size in SIZES)


def print_choices(samples: SumTurns, source: str) -> None:
    """Print what the choice costs in each case, and in how many of them it is near the best."""
    links = {delay: fit_two_hosts(samples, delay) for delay in DELAYS}
    near_best = near_backend = count = 0
    for case in list_cases():
        estimates = (
            samples.seconds_by_algorithm(case, 1) if source == "table" else predict_case(case, links[case.delay])
        )
        timings = [AlgorithmTiming(name, case.size, seconds) for name, seconds in estimates.items()]  # type: ignore[arg-type]
        chosen = choose_algorithm(case.size, timings)
        judged = samples.seconds_by_algorithm(case, 0)
        best = min(judged, key=judged.__getitem__)
        over_best, over_backend = judged[chosen] / judged[best], judged[chosen] / judged[BACKEND]
        near_best += over_best <= NEAR_BEST
        near_backend += over_backend <= NEAR_BACKEND
        count += 1
        print(
            f"  {source}, {1e3 * case.delay:g} ms, {case.hosts} hosts, {format_bytes(case.size):>7}: {chosen:16}"
            f" {over_best:.3f} of {best:16} {over_backend:.3f} of the backend ({1e3 * judged[BACKEND]:.1f} ms)"
        )
    print(
        f"  by {source}: within 5 % of the best in {near_best} of {count}, of the backend within 3 % in {near_backend}"
    )


if __name__ == "__main__":
    main()
