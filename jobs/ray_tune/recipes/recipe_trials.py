"""Trials of a sweep over recipes: those of each recipe in a folder of their own, and the search through Ray Tune."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from equipoise.config import TrainConfig
from equipoise.formatting import format_number
from equipoise.planning.recipe_choice.recipe_search import RecipeSearch, RecipeTrial
from equipoise.registries.sweep_recipes import PLAIN_RECIPE, Recipe
from equipoise.runs.record import Record
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, load_finished_trials, record_to_row
from jobs.ray_tune.tuner import RECIPE_TRIALS_FOLDER, SearchAdapter, SweepTrials

RECIPE_TRIAL_COLUMNS = ["recipe", *FINISHED_TRIAL_COLUMNS]


def build_recipe_trials(plain: SweepTrials, recipe: Recipe) -> SweepTrials:
    """Return the trials of one recipe; those of the plain one are where a sweep without recipes has them."""
    if not recipe.options:
        return plain
    words = recipe.name.replace(":", "-")
    base = apply_recipe(plain.base, recipe)
    # blends depend on which micro-batch an example is in
    max_unsplit_batch = 0 if base.mixup else plain.max_unsplit_batch
    folder = plain.folder / RECIPE_TRIALS_FOLDER / words
    return replace(plain, base=base, folder=folder, max_unsplit_batch=max_unsplit_batch)


def apply_recipe(base: TrainConfig, recipe: Recipe) -> TrainConfig:
    """Return the options of training with those of a recipe."""
    return replace(base, **recipe.options)  # type: ignore[arg-type]  # each has the type of its option


@dataclass(kw_only=True)
class RecipeTrials(SweepTrials):
    """Trials of all recipes of a sweep."""

    by_recipe: Mapping[str, SweepTrials] = field(default_factory=dict)
    """trials of each recipe, by its name"""

    def build_trial(self, suggestion: RecipeTrial) -> TrainConfig:  # type: ignore[override]
        """Build the options of the trial that the search suggests."""
        return self.by_recipe[suggestion.recipe].build_trial(suggestion.setting)

    def record_path(self, suggestion: RecipeTrial) -> Path:  # type: ignore[override]
        """Return the path of the record of a suggested trial."""
        return self.by_recipe[suggestion.recipe].record_path(suggestion.setting)


class RecipeSearchAdapter(SearchAdapter):
    """Adapter that gives Ray Tune the trials of a `RecipeSearch`."""

    search: RecipeSearch  # type: ignore[assignment]  # with the methods of a `Search` that are used here
    sweep_trials: RecipeTrials

    def add_earlier_records(self) -> None:
        """Add the trials of earlier commands, of all recipes that are compared."""
        self.finished_trials = pd.DataFrame([], columns=RECIPE_TRIAL_COLUMNS)
        for trials in self.sweep_trials.by_recipe.values():
            self.add_records(load_finished_trials(trials.folder, trials.base))

    def add_records(self, records: Iterable[Record]) -> None:
        """Add trials that ended, each to its recipe."""
        records = [record for record in records if record.config.global_batch in self.search.batches]
        if not records:
            return
        table = [(self.find_recipe(record.config), *record_to_row(record)) for record in records]
        rows = pd.DataFrame(table, columns=RECIPE_TRIAL_COLUMNS)
        rows["seed"] -= self.sweep_trials.base.seed  # the search counts from 0
        known = self.finished_trials
        self.finished_trials = pd.concat([known, rows], ignore_index=True) if len(known) else rows

    def find_recipe(self, trial: TrainConfig) -> str:
        """Return the recipe of a trial, by its options."""
        return next(name for name, trials in self.sweep_trials.by_recipe.items() if has_recipe(trial, trials.base))

    def is_hopeless(self, suggestion: RecipeTrial, examples_seen: float) -> bool:  # type: ignore[override]
        """Return whether a trial has already taken longer than the best setting of its recipe, by a safe factor."""
        return self.search.is_hopeless(self.finished_trials, suggestion, examples_seen)


def has_recipe(trial: TrainConfig, base: TrainConfig) -> bool:
    """Return whether a trial has the options of a recipe's trials, but for those in which its trials differ."""
    setting = ("workers", "batch_size", "grad_accumulation", "lr", "seed")
    return replace(trial, **{name: getattr(base, name) for name in setting}) == base


class PairingTime:
    """Tells that the time for exploring is up, and the rest is for pairs of seeds."""

    def __init__(self, deadline: float, share: float) -> None:
        """Leave the last `share` of the time until a deadline, from now on, to pairs."""
        self.start = deadline if deadline == float("inf") else deadline - share * max(0.0, deadline - time.time())

    def __call__(self) -> bool:
        """Return whether the time for pairs has begun."""
        return time.time() > self.start


class RecipeStatus:
    """Status of the trials of recipes: a line for each that ends."""

    num_shown = 0

    def show(self, finished_trials: pd.DataFrame, running_count: int, setting_results: Sequence[object]) -> None:
        """Print the trials that ended since the last call."""
        for row in finished_trials.iloc[self.num_shown :].itertuples(index=False, name=None):
            print(format_recipe_trial(*row), flush=True)
        self.num_shown = len(finished_trials)


def format_recipe_trial(recipe: str, global_batch: int, lr: float, seed: int, examples: float, reached: int) -> str:
    """Format a finished trial as a line."""
    end = "reached the target after" if reached else "did not reach the target within"
    return (
        f"{recipe or PLAIN_RECIPE}, global batch {global_batch} at lr {lr:.3g}, seed {seed}: {end}"
        f" {format_number(examples)} examples"
    )
