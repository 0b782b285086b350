"""How good plans are if the time is up before the search ends: python -m benchmarks.search_policies.stopped_early.

Two trials run at a time, each on one worker, as in `replay`; those still running at the end tell nothing. For each
number of seconds: the regret of the plans, and in how many the interval of the critical batch covers the grid's.
"""

import argparse
import warnings

import numpy as np
import pandas as pd

from benchmarks.search_policies.ground_truth import GroundTruth, split_seeds
from benchmarks.search_policies.replay import choose_plan, replay_search
from equipoise.planning.examples_to_target import fit_examples_curve
from jobs.ray_tune.fastest_workers import FastestWorkers

MAX_REGRET = 0.2
HEADER = """
| workload | seconds | trials, at the target | regret: median | 90th percentile | within 20 % | identifiable, covers |
|---|--:|--:|--:|--:|--:|--:|"""


def main() -> None:
    """Print a row for each workload and number of seconds."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_policies.stopped_early", description=__doc__)
    parser.add_argument("names", nargs="*", default=["digits", "patches"])
    parser.add_argument("--seconds", type=float, nargs="+", default=[5.0, 10.0, 20.0, 40.0, np.inf])
    parser.add_argument("--replays", type=int, default=100)
    options = parser.parse_args()
    print(HEADER)
    for name in options.names:
        truth = GroundTruth(name)
        replays = [replay_draw(truth, draw) for draw in range(options.replays)]
        for seconds in options.seconds:
            print(format_row(truth, replays, seconds), flush=True)


def replay_draw(truth: GroundTruth, draw: int) -> tuple[pd.DataFrame, list[float]]:
    """Replay one search to its end; return its trials and when each ended."""
    seen, _ = split_seeds(truth, draw)
    finished, ends, _ = replay_search(truth, seen, FastestWorkers(truth.fit_ladder(draw)))
    return finished, ends


def format_row(truth: GroundTruth, replays: list[tuple[pd.DataFrame, list[float]]], max_seconds: float) -> str:
    """Format the figures of all replays, each stopped after some seconds."""
    critical_batch, *_ = fit_examples_curve(truth.runs).critical_batch or (np.nan,)
    regrets, counts, covered = [], [], []
    for draw, (trials, ends) in enumerate(replays):
        seen, others = split_seeds(truth, draw)
        finished = trials[np.array(ends) <= max_seconds]
        counts.append((len(finished), finished.reached.sum()))
        curve = fit_examples_curve(finished) if finished.reached.any() else None
        choice = choose_plan(truth, truth.fit_ladder(draw), curve) if curve else None
        regrets.append(truth.compute_regret(choice, seen, others) if choice else np.inf)
        if curve and curve.identifiable and curve.critical_batch:
            _, low, high = curve.critical_batch
            covered.append(low <= critical_batch <= high)
    num_ended, num_reached = np.mean(counts, axis=0)
    highest = np.quantile(regrets, 0.9, method="higher")
    within = np.mean(np.array(regrets) <= MAX_REGRET)
    return (
        f"| {truth.name} | {max_seconds:g} | {num_ended:.1f}, {num_reached:.1f} | {np.median(regrets):+.1%}"
        f" | {highest:+.1%} | {within:.0%} | {len(covered)}, {sum(covered)} of {len(replays)} |"
    )


if __name__ == "__main__":
    main()
