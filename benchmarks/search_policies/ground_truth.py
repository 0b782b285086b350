"""Ground truth to judge searches by: a whole grid of real trials, recorded once.

It tells what a chosen setting costs, and what the best one would have cost. A folder holds system.csv, the ladder of
step times measured several times over (the median counts as true), statistical.csv as an exhaustive sweep wrote it,
and metrics.csv: the validation metric of each trial after powers of two of passes over the data.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.measurements import read_examples_to_target
from equipoise.planning.search import GRID_LR_REACH_OCTAVES, round_to_half_octave
from equipoise.planning.setting_runs import SettingRuns, expected_examples
from equipoise.planning.step_time_fit import StepTimeFit, fit_step_time

DATA_FOLDER = Path(__file__).parents[2] / "tests" / "data"
REPLAY_COUNT = 20
GRID_SEED_COUNT = 5  # seeds per setting in the grid search whose cost is the reference


class Choice(NamedTuple):
    """Setting to train with: workers, global batch and learning rate."""

    workers: int
    global_batch: int
    lr: float


class GroundTruth:
    """Recorded trials of one workload, and what they say about each setting."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ladders = pd.read_csv(DATA_FOLDER / name / "system.csv")
        self.fits: dict[int, StepTimeFit] = {}
        self.seconds_by_shape = self.ladders.groupby(["workers", "batch"]).seconds.median()
        self.runs = read_examples_to_target(DATA_FOLDER / name / "statistical.csv").astype(
            {"global_batch": int, "seed": int}
        )
        self.runs_by_setting = {key: runs.set_index("seed") for key, runs in self.runs.groupby(["global_batch", "lr"])}
        self.lrs_by_batch = {b: sorted(runs.lr.unique()) for b, runs in self.runs.groupby("global_batch")}
        self.metrics = (
            pd.read_csv(DATA_FOLDER / name / "metrics.csv").set_index(["global_batch", "lr", "seed"]).sort_index()
        )
        self.seeds = sorted(self.runs.seed.unique())

    @property
    def all_choices(self) -> list[Choice]:
        """All settings that can be chosen: each recorded shape with each learning rate of its batch."""
        shapes = [(workers, workers * batch) for workers, batch in self.seconds_by_shape.index]
        return [Choice(n, b, lr) for n, b in shapes for lr in self.lrs_by_batch[b]]

    def step_seconds(self, workers: int, global_batch: int) -> float:
        """Return the measured seconds of a step."""
        return float(self.seconds_by_shape[workers, global_batch // workers])

    def fit_ladder(self, draw: int) -> StepTimeFit:
        """Fit the step times that one sweep measures: one of the recorded ladders, chosen by `draw`."""
        draws = self.ladders["draw"].unique()
        ladder = draws[draw % len(draws)]
        if ladder not in self.fits:
            self.fits[ladder] = fit_step_time(self.ladders[self.ladders["draw"] == ladder].drop(columns="draw"))
        return self.fits[ladder]

    def one_worker_step_seconds(self, global_batch: int) -> float:
        """Return the seconds of a step on one worker, or twice those of half the batch where not measured."""
        known = self.seconds_by_shape[1]
        return float(known.get(global_batch, 2 * known.get(global_batch // 2, np.nan)))

    def read_trial(self, global_batch: int, lr: float, seed: int) -> tuple[float, bool]:
        """Return the examples until the target or the end of the trial, and whether the target was reached."""
        row = self.runs_by_setting[global_batch, lr].loc[seed]
        return float(row.examples), bool(row.reached)

    def expected_seconds(self, choice: Choice, seeds: list[int]) -> float:
        """Return the mean seconds of a setting to the target over seeds, failed runs followed by further ones."""
        runs = self.runs_by_setting[choice.global_batch, choice.lr].loc[seeds]
        return (
            expected_examples(SettingRuns.from_table(runs))
            / choice.global_batch
            * self.step_seconds(choice.workers, choice.global_batch)
        )

    def find_best(self, seeds: list[int]) -> Choice:
        """Return the setting that is fastest on these seeds of the whole grid."""
        return min(self.all_choices, key=lambda choice: self.expected_seconds(choice, seeds))

    def compute_regret(self, choice: Choice, seen: list[int], others: list[int]) -> float:
        """Return how much longer a choice takes, as a fraction, than the best of the seen seeds, both on the others."""
        return self.expected_seconds(choice, others) / self.expected_seconds(self.find_best(seen), others) - 1

    def grid_worker_seconds(self) -> float:
        """Return the worker-seconds of the full grid: every setting with five seeds on its own workers."""
        kept = self.runs[self.runs.seed < GRID_SEED_COUNT]
        examples = kept.groupby("global_batch").examples.sum()
        return sum(n * examples[n * b] / (n * b) * self.step_seconds(n, n * b) for n, b in self.seconds_by_shape.index)

    def apply_linear_rule(self, global_batch: int, lr: float, base_batch: int) -> float:
        """Return the grid's learning rate nearest to `lr` at `base_batch`, scaled linearly to the batch."""
        wanted = lr * global_batch / base_batch
        return min(self.lrs_by_batch[global_batch], key=lambda rate: abs(np.log(rate / wanted)))


def find_first_lr(truth: GroundTruth) -> float:
    """Return the learning rate that the sweep's search started from: the middle one at the smallest batch."""
    rates = truth.lrs_by_batch[min(truth.lrs_by_batch)]
    return round_to_half_octave(rates[GRID_LR_REACH_OCTAVES])


def split_seeds(truth: GroundTruth, draw: int) -> tuple[list[int], list[int]]:
    """Split the seeds at random into those that a search may see and those that judge it."""
    shuffled = np.random.default_rng(draw).permutation(truth.seeds).tolist()
    return shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]
