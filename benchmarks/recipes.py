"""Examples to the target of a workload by recipe: python -m benchmarks.recipes [--workload digits] [--batch-size 512].

Each recipe is tried with learning rates an octave apart, over seeds. Runs are written as they end to --out, and those
that are there already are not repeated. At the end the best rate of each recipe is printed, with the examples and steps
that its runs needed.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.workloads import load_workload

SMALL_BATCH = 32
RECIPES: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "sgd": ({}, (0.1, 0.2, 0.4, 0.8)),
    "sgd, clipped": ({"clip_norm": 1.0}, (0.2, 0.4, 0.8)),
    "adamw": ({"optimizer": "adamw"}, (0.005, 0.01, 0.02, 0.04)),
    "lamb": ({"optimizer": "lamb"}, (0.01, 0.02, 0.04, 0.08)),
    "lars": ({"optimizer": "lars", "trust": 0.05}, (0.2, 0.4, 0.8, 1.6)),
    "adamw, smoothing": ({"optimizer": "adamw", "label_smoothing": 0.1}, (0.01, 0.02)),
    "adamw, mixup": ({"optimizer": "adamw", "mixup": 0.2}, (0.01, 0.02)),
    "adamw, average": ({"optimizer": "adamw", "average_weights": 0.8}, (0.01, 0.02)),
    "adamw, one-cycle": ({"optimizer": "adamw", "schedule": "one-cycle", "max_examples": 20_000}, (0.01, 0.02)),
    "sgd, small batch": ({"batch_size": SMALL_BATCH}, (0.025, 0.05, 0.1)),
    "sgd, grown by stages": ({"batch_size": SMALL_BATCH, "grow_batch": "4@6000,16@12000"}, (0.025, 0.05, 0.1)),
    "sgd, grown by noise": (
        {"batch_size": SMALL_BATCH, "grow_batch": "auto", "noise_scale_every": 10},
        (0.025, 0.05, 0.1),
    ),
}
"""options of each recipe beside the plain ones, and the learning rates that it is tried with"""


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes", description=__doc__)
    parser.add_argument("--workload", default="digits")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--max-examples", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long; the next call goes on")
    parser.add_argument("--out", type=Path, default=Path("recipes.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run_trials(arguments)
    print_table([json.loads(line) for line in arguments.out.read_text().splitlines()])


def run_trials(arguments: argparse.Namespace) -> None:
    """Run the trials that --out does not have yet, until the time is up."""
    end = time.monotonic() + arguments.seconds
    finished = arguments.out.read_text().splitlines() if arguments.out.exists() else []
    known = {tuple(json.loads(line)[name] for name in ("recipe", "lr", "seed")) for line in finished}
    options = {"batch_size": arguments.batch_size, "max_examples": arguments.max_examples, "noise_scale_every": 0}
    base = TrainConfig(workload=arguments.workload, **options)
    workload = load_workload(base)
    trials = [
        (name, lr, seed)
        for seed in range(arguments.seeds)
        for name, (_, rates) in RECIPES.items()
        for lr in rates
        if (name, lr, seed) not in known
    ]
    for name, lr, seed in trials:
        training = Training(replace(base, lr=lr, seed=seed, **RECIPES[name][0]), workload)
        for _ in training.laps():
            if time.monotonic() > end:
                return
        row = {"recipe": name, "lr": lr, "seed": seed, "examples": training.examples_to_target, "steps": training.step}
        row["batch"] = training.finished_laps[-1].global_batch if training.finished_laps else None
        with arguments.out.open("a") as file:
            file.write(json.dumps(row) + "\n")


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the rate of each recipe at which most seeds reach the target, and of those the soonest."""
    print(f"{'recipe':<22} {'lr':>6}  reached  examples, median (range)      steps  last batch")
    for name in RECIPES:
        by_rate: dict[float, list[dict[str, Any]]] = {}
        for row in rows:
            if row["recipe"] == name:
                by_rate.setdefault(row["lr"], []).append(row)
        if by_rate:
            lr, runs = min(by_rate.items(), key=lambda item: rank_runs(item[1]))
            print(f"{name:<22} {lr:>6g}  {format_runs(runs)}")


def rank_runs(runs: list[dict[str, Any]]) -> tuple[int, float]:
    """Return a key by which the rate comes first with most runs that reached the target, soonest in the median."""
    reached = [run["examples"] for run in runs if run["examples"]]
    return -len(reached), statistics.median(reached) if reached else float("inf")


def format_runs(runs: list[dict[str, Any]]) -> str:
    """Format how many runs reached the target, and what they needed."""
    reached = [run for run in runs if run["examples"]]
    if not reached:
        return f"0 of {len(runs)}"
    examples = sorted(run["examples"] for run in reached)
    median = f"{statistics.median(examples):>7,.0f} ({examples[0]:,.0f} to {examples[-1]:,.0f})"
    steps = statistics.median(run["steps"] for run in reached)
    return f"{len(reached)} of {len(runs)}   {median:<28} {steps:>5.0f}  {reached[-1]['batch']}"


if __name__ == "__main__":
    main()
