"""Compare the search with what people do instead, on recorded trials: python -m benchmarks.search_policies [NAME]."""

import sys

import numpy as np

from benchmarks.search_policies.ground_truth import DATA, REPLAYS, Truth, halves
from benchmarks.search_policies.other_policies import OTHERS
from benchmarks.search_policies.replay import ours


def main() -> None:
    """A table of regrets for each workload."""
    names = sys.argv[1:] or sorted(path.parent.name for path in DATA.glob("*/metrics.csv"))
    for name in names:
        print(table(Truth(name)), flush=True)


def table(truth: Truth) -> str:
    """Regret of each way to choose, over replays that see one half of the seeds and are judged by the other."""
    regrets: dict[str, list[float]] = {"equipoise": [], **{name: [] for name in OTHERS}}
    shares = []
    for draw in range(REPLAYS):
        seen, others = halves(truth, draw)
        choice, spent = ours(truth, seen, draw)
        regrets["equipoise"].append(truth.regret(choice, seen, others))
        shares.append(spent / truth.grid_cost())
        for name, search in OTHERS.items():
            regrets[name].append(truth.regret(search(truth, seen, spent, draw), seen, others))
    lines = [
        f"\n**{truth.name}**: cost {np.median(shares):.1%} of the grid's {truth.grid_cost():,.0f} worker-seconds"
        f" ({max(shares):.1%} at most)\n",
        "| choice by | median regret | 95th percentile |",
        "|---|--:|--:|",
    ]
    for name, own in regrets.items():
        with np.errstate(invalid="ignore"):  # between two that never reach the target lies no number
            highest = np.nan_to_num(np.quantile(own, 0.95), nan=np.inf)
        lines.append(f"| {name} | {np.median(own):+.1%} | {highest:+.1%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
