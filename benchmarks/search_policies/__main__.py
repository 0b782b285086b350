"""Compare the search with what people do instead, on recorded trials: python -m benchmarks.search_policies [NAME]."""

import sys

import numpy as np

from benchmarks.search_policies.ground_truth import DATA_FOLDER, REPLAY_COUNT, GroundTruth, split_seeds
from benchmarks.search_policies.other_policies import OTHER_POLICIES
from benchmarks.search_policies.replay import choose_by_search


def main() -> None:
    """Print a table of regrets for each workload."""
    names = sys.argv[1:] or sorted(path.parent.name for path in DATA_FOLDER.glob("*/metrics.csv"))
    for name in names:
        print(format_regret_table(GroundTruth(name)), flush=True)


def format_regret_table(truth: GroundTruth) -> str:
    """Format the regret of each policy over replays that see one half of the seeds and are judged by the other."""
    regrets: dict[str, list[float]] = {"equipoise": [], **{name: [] for name in OTHER_POLICIES}}
    shares = []
    for draw in range(REPLAY_COUNT):
        seen, others = split_seeds(truth, draw)
        choice, spent = choose_by_search(truth, seen, draw)
        regrets["equipoise"].append(truth.compute_regret(choice, seen, others))
        shares.append(spent / truth.grid_worker_seconds())
        for name, choose in OTHER_POLICIES.items():
            regrets[name].append(truth.compute_regret(choose(truth, seen, spent, draw), seen, others))
    lines = [
        f"\n**{truth.name}**: cost {np.median(shares):.1%} of the grid's"
        f" {truth.grid_worker_seconds():,.0f} worker-seconds ({max(shares):.1%} at most)\n",
        "| choice by | median regret | 95th percentile |",
        "|---|--:|--:|",
    ]
    for name, values in regrets.items():
        with np.errstate(invalid="ignore"):  # interpolating between two infinities gives NaN
            highest = np.nan_to_num(np.quantile(values, 0.95), nan=np.inf)
        lines.append(f"| {name} | {np.median(values):+.1%} | {highest:+.1%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
