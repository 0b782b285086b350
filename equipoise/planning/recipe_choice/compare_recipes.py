"""Comparison of the recipes of a sweep: curves, critical batches, and ratios of examples in pairs of equal seeds.

Each recipe is taken at its own best learning rate at each batch. Ratios are averaged in logs; with few pairs their
scatter is shrunk to that of independent runs.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from equipoise.formatting import format_number, pluralize
from equipoise.planning.examples_to_target import ExamplesCurve, fit_examples_curve
from equipoise.planning.exchange_choice.examples_ratio import MAX_LOG_RATIO, pool_pair_scatter
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.recipe_choice.recipe_report import RecipeAtBatch, RecipeReport, RecipeResult
from equipoise.planning.setting_runs import SettingRuns, group_by_setting, pool_seed_noise, shrink_seed_noise
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES
from equipoise.registries.sweep_recipes import PLAIN_RECIPE, Recipe

MIN_RECIPE_GAIN = (
    1.05  # times as fast as the plain recipe that another one must be expected to be for the plan to take it
)


class RecipeRuns:
    """Finished trials of one recipe, with the curve that is fitted to them; without any there is none."""

    def __init__(self, recipe: Recipe, runs: pd.DataFrame) -> None:
        self.recipe, self.runs = recipe, runs
        self.curve: ExamplesCurve | None = fit_examples_curve(runs) if len(runs) else None

    @property
    def critical_batch(self) -> IntervalEstimate | None:
        """Critical batch with its interval; None where the runs do not show it."""
        return to_interval(self.curve.critical_batch) if self.curve and self.curve.identifiable else None

    @property
    def min_examples(self) -> IntervalEstimate | None:
        """Examples at a very small batch; None where the runs do not show them."""
        return to_interval(self.curve.min_examples) if self.curve and self.curve.identifiable else None


def to_interval(bounds: tuple[float, float, float] | None) -> IntervalEstimate | None:
    """Return a value and the ends of its interval as an estimate, whose ends never exclude the value."""
    if bounds is None:
        return None
    value, low, high = bounds
    return IntervalEstimate(value=value, low=min(low, value), high=max(high, value))


def compare_recipes(recipes: Mapping[str, RecipeRuns], seconds: Mapping[str, IntervalEstimate | None]) -> RecipeReport:
    """Compare all recipes with the plain one, and choose the one whose own plan is predicted to be the fastest."""
    plain = recipes[PLAIN_RECIPE]
    noise = pool_noise([each.runs for each in recipes.values()])
    results = tuple(compare_recipe(each, plain, noise, seconds.get(name)) for name, each in recipes.items())
    chosen, why = choose_recipe(results)
    return RecipeReport(chosen=chosen, why=why, recipes=results)


def pool_noise(tables: list[pd.DataFrame]) -> float:
    """Return the standard deviation between seeds of one setting, in log examples, shrunk where few were repeated."""
    settings = [setting for runs in tables if len(runs) for setting in group_by_setting(runs).values()]
    freedom = sum(max(int(setting.reached.sum()) - 1, 0) for setting in settings)
    return shrink_seed_noise(pool_seed_noise(settings), freedom)


def compare_recipe(own: RecipeRuns, plain: RecipeRuns, noise: float, seconds: IntervalEstimate | None) -> RecipeResult:
    """Compare one recipe with the plain one."""
    critical_ratio = None if own is plain else compare_critical_batches(own, plain)
    at_batches = tuple(list_batches(own, plain, noise))
    return RecipeResult(
        recipe=own.recipe.name,
        options=dict(own.recipe.options),
        trials=len(own.runs),
        reached=int((own.runs.reached == 1).sum()),
        critical_batch=own.critical_batch,
        min_examples=own.min_examples,
        critical_ratio=critical_ratio,
        at_batches=at_batches,
        seconds=seconds,
        verdict="" if own is plain else describe_change(own, plain, critical_ratio, at_batches),
    )


def compare_critical_batches(own: RecipeRuns, plain: RecipeRuns) -> IntervalEstimate | None:
    """Return the ratio of two critical batches with its interval; None if the runs do not show one of them."""
    if own.critical_batch is None or plain.critical_batch is None or own.curve is None or plain.curve is None:
        return None
    logs, plain_logs = (curve.log_parameter_draws[:, 1] for curve in (own.curve, plain.curve))
    # the draws of two curves have the same seeds and would move together: all pairs of them are taken instead
    low, high = np.exp(np.quantile(logs[:, None] - plain_logs[None, :], INTERVAL_QUANTILES))
    return to_interval((own.critical_batch.value / plain.critical_batch.value, float(low), float(high)))


def list_batches(own: RecipeRuns, plain: RecipeRuns, noise: float) -> list[RecipeAtBatch]:
    """Return the examples of a recipe at its best rate of each batch, with ratios to the plain one."""
    if own.curve is None:
        return []
    rows = []
    best = own.curve.best_lr_runs
    for batch in sorted(set(best.global_batch.astype(int).tolist())):
        runs = best[best.global_batch == batch]
        setting = SettingRuns.from_table(runs)
        logs = setting.reached_log_examples
        ratio, pairs = (None, 0) if own is plain else compare_pairs(runs, plain, batch, noise)
        rows.append(
            RecipeAtBatch(
                global_batch=batch,
                lr=float(runs.lr.iloc[0]),
                examples=float(np.exp(logs.mean())) if len(logs) else None,
                runs=len(runs),
                reached=int(setting.reached.sum()),
                ratio=ratio,
                pairs=pairs,
            )
        )
    return rows


def compare_pairs(
    runs: pd.DataFrame, plain: RecipeRuns, batch: int, noise: float
) -> tuple[IntervalEstimate | None, int]:
    """Return the ratio of the examples of one batch over pairs of seeds that reached the target, and their number."""
    if plain.curve is None:
        return None, 0
    others = plain.curve.best_lr_runs
    others = others[(others.global_batch == batch) & (others.reached == 1)]
    pairs = runs[runs.reached == 1].merge(others, on="seed", suffixes=("", "_plain"))
    if pairs.empty:
        return None, 0
    ratios = SettingRuns((pairs.examples / pairs.examples_plain).to_numpy(float), np.ones(len(pairs), bool))
    spread, freedom = pool_pair_scatter(ratios, noise)
    mean = float(ratios.reached_log_examples.mean())
    reach = spread / np.sqrt(len(pairs)) * float(stdtrit(freedom, INTERVAL_QUANTILES[1]))
    low, high = np.exp(np.clip([mean - reach, mean + reach], -MAX_LOG_RATIO, MAX_LOG_RATIO))
    return to_interval((float(np.exp(mean)), float(low), float(high))), len(pairs)


def describe_change(
    own: RecipeRuns,
    plain: RecipeRuns,
    critical_ratio: IntervalEstimate | None,
    at_batches: tuple[RecipeAtBatch, ...],
) -> str:
    """Say what a recipe does to the critical batch, and at which batches it needs fewer or more examples."""
    return f"{describe_critical_batch(own, plain, critical_ratio)}; {describe_examples(at_batches)}"


def describe_critical_batch(own: RecipeRuns, plain: RecipeRuns, ratio: IntervalEstimate | None) -> str:
    """Say whether a recipe moves the critical batch."""
    if ratio is None or own.critical_batch is None or plain.critical_batch is None:
        missing = own.recipe.name if own.critical_batch is None else PLAIN_RECIPE
        return f"what it does to the critical batch is not known: the runs do not show that of {missing}"
    before, after = plain.critical_batch.value, own.critical_batch
    numbers = f"{before:.0f} to {after.value:.0f} ({after.low:.0f} to {after.high:.0f}) examples"
    if ratio.includes(1.0):
        return f"the critical batch is not told apart from that of {PLAIN_RECIPE} ({numbers})"
    return f"it moves the critical batch from {numbers}"


def describe_examples(at_batches: tuple[RecipeAtBatch, ...]) -> str:
    """Say at which batches a recipe needs fewer or more examples than the plain one."""
    parts = [
        f"{word} at {', '.join(format_ratio(row) for row in rows)}"
        for word, rows in (
            ("fewer examples", [row for row in at_batches if row.is_better]),
            ("more", [row for row in at_batches if row.is_worse]),
        )
        if rows
    ]
    if parts:
        return " and ".join(parts)
    pairs = sum(row.pairs for row in at_batches)
    return f"no batch where its examples are told apart from those of {PLAIN_RECIPE}, with {pluralize(pairs, 'pair')}"


def format_ratio(row: RecipeAtBatch) -> str:
    """Format the ratio at a batch, such as `512 (0.71 times)`."""
    return f"{row.global_batch:,} ({format_number(row.ratio.value if row.ratio else None)} times)"


def choose_recipe(results: tuple[RecipeResult, ...]) -> tuple[str, str]:
    """Return the recipe of the plan and the reason: the fastest one, if it is expected to gain something."""
    planned = {each.recipe: each.seconds.value for each in results if each.seconds}
    if not planned:
        return PLAIN_RECIPE, "no recipe has a plan"
    fastest = min(planned, key=lambda name: planned[name])
    plain = planned.get(PLAIN_RECIPE)
    if fastest == PLAIN_RECIPE:
        return PLAIN_RECIPE, "no other recipe is predicted to reach the target sooner"
    if plain is None:
        return fastest, f"its plan is the fastest, and {PLAIN_RECIPE} has none"
    if plain < MIN_RECIPE_GAIN * planned[fastest]:
        return PLAIN_RECIPE, f"the fastest other one, {fastest}, would gain less than {MIN_RECIPE_GAIN - 1:.0%}"
    return (
        fastest,
        f"its plan is predicted to be {plain / planned[fastest]:.2g} times as fast as that of {PLAIN_RECIPE}",
    )
