"""How many times the examples each way of exchange needs to the target: python -m benchmarks.examples_ratios WORKLOAD.

All workers are copies of the weights in this process. Each way of exchange has the learning rate that is best for it,
found from the best one of exact sums an octave at a time, and runs are paired by seed. Asynchronous updates are tried
with several momenta. Runs are written as they end to a table that jobs.plan reads, and those that are there already are
not repeated. At the end the ratios are printed, and the critical interval and staleness that they tell.
"""

import argparse
import csv
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch

from equipoise.config import TrainConfig
from equipoise.planning.exchange_choice.ratio_table import fit_ratio_table
from equipoise.planning.exchanges.exact_rows import read_momentum, split_by_momentum
from equipoise.planning.exchanges.exchange_columns import read_runs_by_exchange
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.training_options import replace_exchange
from equipoise.training.loop import Training
from equipoise.workloads import Workload, load_workload

LOCAL_EXCHANGES = ("local:2", "local:4", "local:8", "local:16", "local:32", "local:64", "diloco:16")
COMPRESSIONS = ("bf16", "int8", "powersgd:1", "powersgd:2", "powersgd:4", "topk:0.01", "topk:0.1")
SEARCH_SEEDS = 2  # that compare learning rates
MAX_OCTAVES = 3  # from the first learning rate
ASYNCHRONOUS = ("async:1", "async:2", "async:3")
COLUMNS = ("exchange", "workers", "global_batch", "lr", "seed", "examples", "reached", "momentum")


class RatioTrial(NamedTuple):
    """Way of exchange, global batch, learning rate, seed and momentum of a run; None for the momentum by default."""

    exchange: str
    global_batch: int
    lr: float
    seed: int
    momentum: float | None = None


class TrialTable:
    """Runs of one workload on a number of workers, in a file."""

    def __init__(self, path: Path, base: TrainConfig, workload: Workload) -> None:
        self.path, self.base, self.workload = path, base, workload
        self.examples: dict[RatioTrial, float] = {}
        """examples to the target; infinite for runs that did not reach it"""
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    if int(row["workers"]) == base.workers:
                        setting = row["exchange"], int(row["global_batch"]), float(row["lr"]), int(row["seed"])
                        trial = RatioTrial(*setting, float(row["momentum"]) if row.get("momentum") else None)
                        self.examples[trial] = float(row["examples"]) if row["reached"] == "1" else math.inf

    def count_examples(self, trial: RatioTrial) -> float:
        """Return the examples to the target of a trial, which is run if it has not been."""
        if trial not in self.examples:
            training = self._train(trial)
            reached = training.examples_to_target is not None
            seen = training.examples_to_target or training.examples_seen
            self.examples[trial] = seen if reached else math.inf
            setting = [trial.exchange, self.base.workers, *trial[1:4]]
            self._append([*setting, f"{seen:.1f}", int(reached), trial.momentum])
            print(*trial, f"{seen:.0f}" if reached else training.status, flush=True)
        return self.examples[trial]

    def count_or_penalize(self, trial: RatioTrial) -> float:
        """Return the examples of a trial; of one that did not reach the target, twice as many as it was given."""
        limit = math.inf if self.base.max_examples is None else 2.0 * self.base.max_examples
        return min(self.count_examples(trial), limit)

    def _train(self, trial: RatioTrial) -> Training:
        config = build_config(self.base, trial)
        training = Training(config, self.workload)
        for _ in training.laps():
            pass
        return training

    def _append(self, row: list[object]) -> None:
        is_new = not self.path.exists()
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([COLUMNS, row] if is_new else [row])


def main() -> None:
    """Run the trials that are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.examples_ratios", description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--out", type=Path, required=True, help="table of runs, which is added to")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128], help="examples per step of all workers")
    parser.add_argument("--lr", type=float, default=0.1, help="first learning rate at the first batch")
    parser.add_argument("--exchanges", nargs="+", default=[*LOCAL_EXCHANGES, *COMPRESSIONS, *ASYNCHRONOUS])
    parser.add_argument("--momenta", type=float, nargs="+", default=[0.9, 0.0], help="momenta of asynchronous updates")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--max-examples", type=int)
    parser.add_argument("--eval-every", type=int)
    parser.add_argument("--target", type=float)
    options = parser.parse_args()
    torch.set_num_threads(1)
    base = TrainConfig(
        workload=options.workload,
        workers=options.workers,
        noise_scale_every=0,
        max_examples=options.max_examples,
        eval_every=options.eval_every,
        target=options.target,
    )
    table = TrialTable(options.out, base, load_workload(base))
    for batch in options.batches:
        first_lr = options.lr * math.sqrt(batch / options.batches[0])
        exact_lr = run_at_best_lr(table, "", batch, first_lr, options.seeds)
        for exchange in options.exchanges:
            is_asynchronous = parse_exchange(exchange).sync == "async"
            for momentum in options.momenta if is_asynchronous else [None]:
                own = None if momentum == base.momentum else momentum
                # the rate at which a gradient moves the weights as far in the end as with the usual momentum
                scale = 1.0 if own is None else (1 - own) / (1 - base.momentum)
                run_at_best_lr(table, exchange, batch, exact_lr * scale, options.seeds, own)
    print_ratios(options.out)


def run_at_best_lr(
    table: TrialTable, exchange: str, batch: int, first_lr: float, seeds: int, momentum: float | None = None
) -> float:
    """Run all seeds at the learning rate that is best for them, and return that rate.

    A rate that was best for the first seeds may lose with all of them: then the next best gets all seeds, too.
    """
    seeds_by_octave: dict[int, int] = {}

    def mean_examples(octaves: int, count: int = SEARCH_SEEDS) -> float:
        seeds_by_octave[octaves] = count
        trials = [
            RatioTrial(exchange, batch, round_lr(first_lr * 2.0**octaves), seed, momentum) for seed in range(count)
        ]
        return sum(map(table.count_or_penalize, trials)) / count

    means = {octave: mean_examples(octave) for octave in find_lowest(mean_examples)}
    while seeds_by_octave[best := min(means, key=lambda octave: (means[octave], octave))] < seeds:
        means[best] = mean_examples(best, seeds)
    return round_lr(first_lr * 2.0**best)


def print_ratios(path: Path) -> None:
    """Print the ratio of each way of exchange by momentum, and the lines that the ratios at the better one tell."""
    runs = read_runs_by_exchange(path)
    for part in split_by_momentum(runs[runs.exchange != ""]):
        momentum = read_momentum(part)
        text = "" if momentum is None else f" with momentum {momentum:g}"
        for ratio in fit_ratio_table(pd.concat([runs[runs.exchange == ""], part])).ratios:
            interval, key = ratio.interval, ratio.key
            print(f"{key.exchange}, global batch {key.global_batch}{text}: {interval.value:.3g}", end=" ")
            print(f"({interval.low:.3g} to {interval.high:.3g}) at lr {ratio.lr:g}, {ratio.reached} of {ratio.pairs}")
    table = fit_ratio_table(runs)
    for family, line in (table.critical_intervals | table.critical_stalenesses).items():
        critical = line.interval
        print(f"critical value of {family.sync}, global batch {family.global_batch}: {critical.value:.3g}", end=" ")
        print(f"({critical.low:.3g} to {critical.high:.3g})")
    print(*table.gaps, sep="\n")


def find_lowest(function: Callable[[int], float]) -> list[int]:
    """Return whole numbers around the one with the lowest value, by going from 0 to the side that is lower.

    While all values are the same it goes down: a learning rate that no run survives is too high.
    """
    values = {octave: function(octave) for octave in (0, 1, -1)}
    while True:
        best = min(values, key=lambda octave: (values[octave], octave))
        missing = [octave for octave in (best - 1, best + 1) if octave not in values and abs(octave) <= MAX_OCTAVES]
        if not missing:
            return [*values]
        values |= {octave: function(octave) for octave in missing}


def build_config(base: TrainConfig, trial: RatioTrial) -> TrainConfig:
    """Build the options of a trial."""
    config = replace_exchange(base, trial.exchange)
    momentum = base.momentum if trial.momentum is None else trial.momentum
    batch_size = trial.global_batch // base.workers
    return replace(config, batch_size=batch_size, lr=trial.lr, seed=trial.seed, momentum=momentum)


def round_lr(lr: float) -> float:
    """Round a learning rate, so that equal ones are equal numbers."""
    return float(f"{lr:.6g}")


if __name__ == "__main__":
    main()
