"""The recipe table from its trials: python -m benchmarks.recipe_table --trials recipe_trials.jsonl.

For each workload and global batch: examples to the target of a recipe at its best learning rate, in the median of the
seeds and with their range; the ratio to the plain recipe over pairs of equal seeds, with an interval of 80 %; and the
metric on the test split and on training examples, at the target and, where runs went on, after equal examples.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student_t

from benchmarks.recipe_cells import RECIPES, WORKLOADS, Row, TableWorkload
from benchmarks.recipe_trials import SEEDS
from equipoise.formatting import pluralize
from equipoise.planning.examples_to_target import fit_examples_curve
from equipoise.planning.exchange_choice.examples_ratio import pool_pair_scatter
from equipoise.planning.setting_runs import PRIOR_SEED_NOISE, SettingRuns
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES

HEADER = "| recipe | batch | rate | reached | examples, median (range) | over plain (80 %) | test at the target | gap | test, gap at the end |"  # noqa: E501 - a row of a table
SLOW_HOSTS = {"step": 0.489, "example": 0.00107}
"""seconds of a step of two hosts over 200 Mbit/s and of each example of a worker, with 11.1 MB of gradients"""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipe_table", description=__doc__)
    parser.add_argument("--trials", type=Path, default=Path("recipe_trials.jsonl"))
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.trials.read_text().splitlines()]
    for name, workload in WORKLOADS.items():
        own = [row for row in rows if row["workload"] == name]
        print_critical_batches(name, workload, own)
        print_table(workload, [row for row in own if row["kind"] == "final"])
        print_seconds(workload, [row for row in own if row["kind"] == "final"])


def print_critical_batches(name: str, workload: TableWorkload, rows: list[Row]) -> None:
    """Print the critical batch of each recipe that was tried at three batches, from all of its runs."""
    print(f"\n## {name}\n")
    for recipe in RECIPES:
        runs = [row for row in rows if row["recipe"] == recipe and row["length"] is None]
        if len({row["batch"] for row in runs if row["examples"]}) < 3:
            continue
        table = pd.DataFrame(
            {
                "global_batch": [row["batch"] for row in runs],
                "lr": [row["lr"] for row in runs],
                "seed": [row["seed"] for row in runs],
                "examples": [row["examples"] or row["seen"] for row in runs],
                "reached": [int(row["examples"] is not None) for row in runs],
            }
        )
        curve = fit_examples_curve(table)
        if curve.critical_batch and curve.min_examples:
            known = "" if curve.identifiable else ", not identified"
            value, low, high = curve.critical_batch
            print(f"- {recipe}: critical batch {value:.0f} ({low:.0f} to {high:.0f}){known};", end=" ")
            print(f"least examples {curve.min_examples[0]:,.0f}")


def print_table(workload: TableWorkload, rows: list[Row]) -> None:
    """Print a row for each recipe and batch."""
    print(f"\n{HEADER}\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    plain = {row["batch"]: {} for row in rows}  # type: dict[int, dict[int, Row]]
    for row in rows:
        if row["recipe"] == "plain":
            plain[row["batch"]][row["seed"]] = row
    for recipe in RECIPES:
        keys = sorted({(row["batch"], row["length"] or 0) for row in rows if row["recipe"] == recipe})
        for batch, length in keys:
            runs = [row for row in rows if (row["recipe"], row["batch"], row["length"] or 0) == (recipe, batch, length)]
            name = f"{recipe} over {length:,}" if length else recipe
            print(format_row(workload, name, batch, runs, {} if recipe == "plain" else plain.get(batch, {})))


def format_row(workload: TableWorkload, name: str, batch: int, runs: list[Row], plain: dict[int, Row]) -> str:
    """Format the runs of one cell."""
    reached = sorted(row["examples"] for row in runs if row["examples"])
    at_target = [row["at_target"] for row in runs if row.get("at_target")]
    at_end = [row["at_end"] for row in runs if row.get("at_end") and row["examples"]]
    cells = [
        name,
        f"{batch:,}",
        f"{runs[0]['lr']:.3g}",
        f"{len(reached)} of {len(runs)}",
        format_examples(reached, runs),
        format_ratio(runs, plain),
        f"{statistics.fmean([each['test'] for each in at_target]):.3f}" if at_target else "",
        format_gap(at_target, is_text=workload.is_text),
        f"{statistics.fmean([each['test'] for each in at_end]):.3f}, {format_gap(at_end, is_text=workload.is_text)}"
        if at_end and workload.budget
        else "",
    ]
    return f"| {' | '.join(cells)} |"


def format_examples(reached: list[float], runs: list[Row]) -> str:
    """Format the examples of runs that reached the target, or how many were not enough."""
    if not reached:
        return f"more than {max(row['seen'] for row in runs):,}"
    return f"{statistics.median(reached):,.0f} ({reached[0]:,.0f} to {reached[-1]:,.0f})"


def format_gap(metrics: list[dict[str, float]], *, is_text: bool) -> str:
    """Format how much better the metric is on training examples than on the test split; empty without any."""
    if not metrics:
        return ""
    sign = -1 if is_text else 1  # nats are better where they are lower
    return f"{sign * statistics.fmean([each['train'] - each['test'] for each in metrics]):+.3f}"


def format_ratio(runs: list[Row], plain: dict[int, Row]) -> str:
    """Format the ratio to the plain recipe over the seeds of which both reached the target."""
    ratios = [
        row["examples"] / plain[row["seed"]]["examples"]
        for row in runs
        if row["examples"] and row["seed"] in plain and plain[row["seed"]]["examples"]
    ]
    if not ratios:
        return ""
    spread, freedom = pool_pair_scatter(SettingRuns(np.array(ratios), np.ones(len(ratios), bool)), PRIOR_SEED_NOISE)
    log_mean = statistics.fmean([math.log(ratio) for ratio in ratios])
    reach = spread / math.sqrt(len(ratios)) * float(student_t.ppf(INTERVAL_QUANTILES[1], freedom))
    low, high = math.exp(log_mean - reach), math.exp(log_mean + reach)
    pairs = "" if len(ratios) == len(SEEDS) else f", {pluralize(len(ratios), 'pair')}"
    return f"{math.exp(log_mean):.2f} ({low:.2f} to {high:.2f}){pairs}"


def print_seconds(workload: TableWorkload, rows: list[Row]) -> None:
    """Print the seconds to the target on two slow hosts of constant batches and of one that grows."""
    for recipe in ("plain", "grow auto"):
        for batch in sorted({row["batch"] for row in rows if row["recipe"] == recipe}):
            runs = [row for row in rows if row["recipe"] == recipe and row["batch"] == batch and row["examples"]]
            seconds = sorted(predict_seconds(row["batches"]) for row in runs)
            if seconds:
                print(f"- two slow hosts, {recipe} from {batch}: {statistics.median(seconds):.0f} s", end=" ")
                print(f"({seconds[0]:.0f} to {seconds[-1]:.0f}), {len(seconds)} runs, batches", end=" ")
                print(sorted({int(name) for row in runs for name in row["batches"]}))


def predict_seconds(steps: dict[str, int]) -> float:
    """Return the seconds of steps by global batch on two slow hosts, each with half of it."""
    return sum(count * (SLOW_HOSTS["step"] + SLOW_HOSTS["example"] * int(batch) / 2) for batch, count in steps.items())


if __name__ == "__main__":
    main()
