"""Search over the recipes of a sweep, their comparison, and the recipe that the plan is made with."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from ray.tune import Callback

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.build_document import PlanRequest, build_plan_document
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.recipe_choice.compare_recipes import RecipeRuns, compare_recipes
from equipoise.planning.recipe_choice.recipe_report import RECIPES_FILE, RECIPES_TABLE, RecipeReport
from equipoise.planning.recipe_choice.recipe_search import RecipeSearch
from equipoise.planning.search import UNBOUNDED_LR, LrBounds, Search
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.training_setup import TrainingSetup
from equipoise.registries.sweep_recipes import Recipe, find_lr_factor
from equipoise.storage.atomic import write_json
from equipoise.workloads import load_workload
from equipoise.workloads.checks.recipe_checks import check_recipes
from jobs.cli.describe_setup import collect_setup_options
from jobs.ray_tune.exchanges.exchange_sweep import inherited_fields
from jobs.ray_tune.fastest_workers import FastestWorkers
from jobs.ray_tune.recipes.recipe_text import format_recipes
from jobs.ray_tune.recipes.recipe_trials import (
    PairingTime,
    RecipeSearchAdapter,
    RecipeStatus,
    RecipeTrials,
    apply_recipe,
    build_recipe_trials,
)
from jobs.ray_tune.run_trials import run_trials
from jobs.ray_tune.trial_budget import require_finished_trials
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS
from jobs.ray_tune.tuner import SweepTrials
from jobs.timing.timing_tables import write_csv

PAIRING_SHARE = 0.4  # of the time for trials, for pairs of seeds at the best rates


class ChosenRecipe(NamedTuple):
    """Recipe that a sweep goes on with."""

    trials: SweepTrials
    """its trials"""
    setup: TrainingSetup
    """setup with its options"""


def require_trainable_recipes(base: TrainConfig, recipes: Sequence[Recipe]) -> None:
    """Refuse a recipe that the workload has no labels or inputs for, or that is the same as another one."""
    if not recipes:
        return
    workload = load_workload(base)
    bases: dict[TrainConfig, str] = {}
    for recipe in recipes:
        config = apply_recipe(base, recipe)
        if config in bases:
            raise EquipoiseError(
                "option-conflict",
                f"cannot compare the recipe {recipe.name}: on {workload.name} it is the same as {bases[config]}",
                "omit one of the two",
            )
        bases[config] = recipe.name
        try:
            check_recipes(workload.name, workload, config)
        except EquipoiseError as error:
            raise error.within(f"cannot try the recipe {recipe.name}") from None


class RecipeSweep:
    """Search over the recipes of a sweep, whose steps were timed with the plain one."""

    def __init__(
        self, recipes: Sequence[Recipe], trials: SweepTrials, fastest: FastestWorkers, lr: tuple[float, LrBounds]
    ) -> None:
        """Search from a learning rate of the plain recipe at the smallest batch, within bounds of that recipe.

        Those of a recipe with another optimizer are the usual multiple of them.
        """
        self.recipes, self.plain, self.fastest = recipes, trials, fastest
        self.initial_lr, self.bounds = lr
        self.by_recipe = {recipe.name: build_recipe_trials(trials, recipe) for recipe in recipes}

    def run(self, callbacks: list[Callback]) -> pd.DataFrame:
        """Run the trials of all recipes, and return those that ended, with the recipe of each."""
        for trials in self.by_recipe.values():
            trials.folder.mkdir(exist_ok=True, parents=True)
        seconds = self.plain.deadline - time.time()
        search = RecipeSearch(
            {recipe.name: self.build_search(recipe) for recipe in self.recipes},
            PairingTime(self.plain.deadline, PAIRING_SHARE),
        )
        trials = RecipeTrials(**inherited_fields(self.plain) | {"by_recipe": self.by_recipe})
        adapter = RecipeSearchAdapter(search, trials, RecipeStatus())  # type: ignore[arg-type]  # it shows them too
        adapter.sweep_status.num_shown = len(adapter.finished_trials)  # type: ignore[attr-defined]
        run_trials(adapter, callbacks, prune=True)
        adapter.add_trials_that_ended_late()
        runs = adapter.finished_trials
        own = runs[FINISHED_TRIAL_COLUMNS]
        is_up = time.time() >= self.plain.deadline
        require_finished_trials(own, self.plain.folder, seconds, trials.concurrent_trials, time_is_up=is_up)
        seeds = runs.seed + self.plain.base.seed
        return runs.assign(seed=seeds).sort_values(["recipe", *FINISHED_TRIAL_COLUMNS[:3]], ignore_index=True)

    def build_search(self, recipe: Recipe) -> Search:
        """Build the search of one recipe."""
        factor = find_lr_factor(recipe, self.plain.base.optimizer)
        low, high = (min(max(factor * lr, UNBOUNDED_LR[0]), UNBOUNDED_LR[1]) for lr in self.bounds)
        bounds = self.bounds if self.bounds == UNBOUNDED_LR else (low, high)
        batches = sorted(self.fastest.seconds_by_batch)
        return Search(batches, factor * self.initial_lr, self.fastest.step_seconds, bounds)

    def choose(self, runs: pd.DataFrame, steps: pd.DataFrame, step_fit: StepTimeFit) -> RecipeReport:
        """Compare the recipes by their runs, each with the plan that it would have."""
        tables = {recipe.name: runs[runs.recipe == recipe.name][FINISHED_TRIAL_COLUMNS] for recipe in self.recipes}
        seconds = {name: predict_seconds(table, steps, step_fit) for name, table in tables.items()}
        return compare_recipes({each.name: RecipeRuns(each, tables[each.name]) for each in self.recipes}, seconds)

    def go_on_with(self, name: str, setup: TrainingSetup) -> ChosenRecipe:
        """Return the trials and the setup of a recipe; the setup has its options, and its name."""
        trials = self.by_recipe[name]
        options = collect_setup_options(trials.base, load_workload(trials.base))
        return ChosenRecipe(trials, replace(setup, options=options, recipe=name))


def predict_seconds(runs: pd.DataFrame, steps: pd.DataFrame, step_fit: StepTimeFit) -> IntervalEstimate | None:
    """Return the seconds to the target of the plan that the runs of one recipe lead to; None without one."""
    if not len(runs) or not runs.reached.any():
        return None
    plan = build_plan_document(PlanRequest(system=steps, statistical=runs), step_fit=step_fit).plan
    return plan.seconds if plan else None


def search_recipes(
    sweep: RecipeSweep,
    setup: TrainingSetup,
    steps: pd.DataFrame,
    step_fit: StepTimeFit,
    callbacks: list[Callback],
    out: Path,
) -> ChosenRecipe:
    """Run the trials of all recipes, write and print what they do, and return the one that the plan is made with."""
    runs = sweep.run(callbacks)
    report = sweep.choose(runs, steps, step_fit)
    write_csv(runs, out / RECIPES_TABLE)
    write_json(out / RECIPES_FILE, report.to_json())
    print(format_recipes(report), flush=True)
    return sweep.go_on_with(report.chosen, setup)
