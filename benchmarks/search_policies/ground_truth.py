"""A whole grid of real trials, recorded once, to judge by: what does a choice cost, and what would the best have?

A folder holds system.csv, the ladder of step times taken several times over (its median counts as true),
statistical.csv as an exhaustive sweep left it, and metrics.csv: the validation metric of each trial after
powers of two of passes.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.measurements import read_examples_to_target
from equipoise.planning.search import GRID_LR_REACH_OCTAVES, round_to_half_octave
from equipoise.planning.setting_runs import SettingRuns, expected_examples
from equipoise.planning.step_time_fit import StepTimeFit, fit_step_time

DATA = Path(__file__).parents[2] / "tests" / "data"
REPLAYS = 20
GRID_SEEDS = 5  # of the grid whose cost others are held against


class Choice(NamedTuple):
    """What to train with."""

    workers: int
    global_batch: int
    lr: float


class Truth:
    """The recorded trials of one workload."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ladders = pd.read_csv(DATA / name / "system.csv")
        self.fits: dict[int, StepTimeFit] = {}
        self.steps = self.ladders.groupby(["workers", "batch"]).seconds.median()
        self.runs = read_examples_to_target(DATA / name / "statistical.csv").astype({"global_batch": int, "seed": int})
        self.by_setting = {key: here.set_index("seed") for key, here in self.runs.groupby(["global_batch", "lr"])}
        self.rates = {b: sorted(here.lr.unique()) for b, here in self.runs.groupby("global_batch")}
        self.metrics = pd.read_csv(DATA / name / "metrics.csv").set_index(["global_batch", "lr", "seed"]).sort_index()
        self.seeds = sorted(self.runs.seed.unique())

    @property
    def choices(self) -> list[Choice]:
        """All that can be chosen."""
        places = [(workers, workers * batch) for workers, batch in self.steps.index]
        return [Choice(n, b, lr) for n, b in places for lr in self.rates[b]]

    def step(self, workers: int, global_batch: int) -> float:
        """Seconds of a step: measured."""
        return float(self.steps[workers, global_batch // workers])

    def ladder(self, draw: int) -> StepTimeFit:
        """Step times as one sweep measures them."""
        draws = self.ladders["draw"].unique()
        number = draws[draw % len(draws)]
        if number not in self.fits:
            self.fits[number] = fit_step_time(self.ladders[self.ladders["draw"] == number].drop(columns="draw"))
        return self.fits[number]

    def alone(self, global_batch: int) -> float:
        """Seconds of a step on one worker that stands for all; as long as for two halves where it was not measured."""
        known = self.steps[1]
        return float(known.get(global_batch, 2 * known.get(global_batch // 2, np.nan)))

    def trial(self, global_batch: int, lr: float, seed: int) -> tuple[float, bool]:
        """Examples until the target or the end, and whether it was reached."""
        row = self.by_setting[global_batch, lr].loc[seed]
        return float(row.examples), bool(row.reached)

    def seconds(self, choice: Choice, seeds: list[int]) -> float:
        """Seconds to the target that a choice takes on average over seeds, runs that fail being followed by others."""
        here = self.by_setting[choice.global_batch, choice.lr].loc[seeds]
        return (
            expected_examples(SettingRuns.from_table(here))
            / choice.global_batch
            * self.step(choice.workers, choice.global_batch)
        )

    def best(self, seeds: list[int]) -> Choice:
        """What the whole grid says is fastest."""
        return min(self.choices, key=lambda choice: self.seconds(choice, seeds))

    def regret(self, choice: Choice, seen: list[int], others: list[int]) -> float:
        """How much longer a choice takes than the grid's best of the seeds seen, both on the other seeds."""
        return self.seconds(choice, others) / self.seconds(self.best(seen), others) - 1

    def grid_cost(self) -> float:
        """Worker-seconds of every trial with five seeds on its own workers."""
        kept = self.runs[self.runs.seed < GRID_SEEDS]
        examples = kept.groupby("global_batch").examples.sum()
        return sum(n * examples[n * b] / (n * b) * self.step(n, n * b) for n, b in self.steps.index)

    def rule(self, global_batch: int, lr: float, at: int) -> float:
        """The rate of the grid nearest to `lr` at a batch of `at`, scaled linearly."""
        wanted = lr * global_batch / at
        return min(self.rates[global_batch], key=lambda rate: abs(np.log(rate / wanted)))


def first_rate(truth: Truth) -> float:
    """The rate that the sweep's search started from: the middle of those at the smallest batch."""
    rates = truth.rates[min(truth.rates)]
    return round_to_half_octave(rates[GRID_LR_REACH_OCTAVES])


def halves(truth: Truth, draw: int) -> tuple[list[int], list[int]]:
    """The seeds that may be seen, and those that judge."""
    mixed = np.random.default_rng(draw).permutation(truth.seeds).tolist()
    return mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]
