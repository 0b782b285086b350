"""How good the plan is if the time is up before the search has ended: python -m benchmarks.search_policies.stopped_early.

Two trials run at a time, each on one worker, as in `replay`; those still running at the end tell nothing. For each
number of seconds: the regret of the plans, and in how many the interval of the critical batch covers the grid's.
"""

import argparse
import warnings

import numpy as np

from benchmarks.search_policies.ground_truth import REPLAY_COUNT, GroundTruth, split_seeds
from benchmarks.search_policies.replay import choose_plan, replay_search
from equipoise.planning.examples_to_target import fit_examples_curve
from jobs.ray_tune.fastest_workers import FastestWorkers

HEADER = """
| workload | seconds | trials, at the target | regret: median | 90th percentile | largest | identifiable, covers |
|---|--:|--:|--:|--:|--:|--:|"""


def main() -> None:
    """Print a row for each workload and number of seconds."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_policies.stopped_early", description=__doc__)
    parser.add_argument("names", nargs="*", default=["digits", "patches"])
    parser.add_argument("--seconds", type=float, nargs="+", default=[5.0, 10.0, 20.0, 40.0, np.inf])
    options = parser.parse_args()
    print(HEADER)
    for name in options.names:
        truth = GroundTruth(name)
        for seconds in options.seconds:
            print(format_row(truth, seconds), flush=True)


def format_row(truth: GroundTruth, max_seconds: float) -> str:
    """Format the figures of all replays that are stopped after some seconds."""
    critical_batch, *_ = fit_examples_curve(truth.runs).critical_batch or (np.nan,)
    regrets, counts, covered = [], [], []
    for draw in range(REPLAY_COUNT):
        seen, others = split_seeds(truth, draw)
        step_time_fit = truth.fit_ladder(draw)
        finished, _ = replay_search(truth, seen, FastestWorkers(step_time_fit), max_seconds)
        counts.append((len(finished), finished.reached.sum()))
        curve = fit_examples_curve(finished) if finished.reached.any() else None
        choice = choose_plan(truth, step_time_fit, curve) if curve else None
        regrets.append(truth.compute_regret(choice, seen, others) if choice else np.inf)
        if curve and curve.identifiable and curve.critical_batch:
            _, low, high = curve.critical_batch
            covered.append(low <= critical_batch <= high)
    trials, reached = np.mean(counts, axis=0)
    highest = np.quantile(regrets, 0.9, method="higher")
    return (
        f"| {truth.name} | {max_seconds:g} | {trials:.1f}, {reached:.1f} | {np.median(regrets):+.1%} | {highest:+.1%}"
        f" | {max(regrets):+.1%} | {len(covered)}, {sum(covered)} of {REPLAY_COUNT} |"
    )


if __name__ == "__main__":
    main()
