"""Comparison of recipes: the critical batch of each, ratios in pairs, and which one the plan is made with."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.recipe_choice.compare_recipes import RecipeRuns, compare_recipes
from equipoise.planning.recipe_choice.recipe_report import RecipeReport
from equipoise.registries.sweep_recipes import parse_recipe
from tests.support.errors import raises_code

BATCHES = (8, 32, 128, 512)


def draw_runs(min_examples, critical_batch, seeds=5, shift=0.0, noise=0.1):
    """Return runs along a hyperbola; equal seeds have equal noise, as paired runs nearly do."""
    rows = []
    for batch in BATCHES:
        for seed in range(seeds):
            luck = np.random.default_rng([seed, batch]).normal(0, noise)
            examples = min_examples * (1 + batch / critical_batch) * np.exp(luck + shift)
            rows.append((batch, 0.1, seed, examples, 1))
    return pd.DataFrame(rows, columns=["global_batch", "lr", "seed", "examples", "reached"])


def compare(seconds=(), **runs):
    """Compare recipes, plain and others by the names of their options, with the predicted seconds of each plan."""
    names = {"plain": "plain", "lamb": "lamb", "mixup": "mixup:0.2"}
    recipes = {names[name]: RecipeRuns(parse_recipe(names[name]), table) for name, table in runs.items()}
    plans = {names[name]: to_estimate(value) for name, value in dict(seconds).items()}
    report = compare_recipes(recipes, plans)
    return report, {each.recipe: each for each in report.recipes}


def to_estimate(value):
    return IntervalEstimate(value=value, low=value / 2, high=value * 2)


def test_recipe_that_moves_the_critical_batch_is_told():
    _, results = compare(plain=draw_runs(5000, 60), lamb=draw_runs(5000, 400))
    lamb = results["lamb"]
    assert lamb.critical_ratio.includes(400 / 60) and lamb.critical_ratio.low > 2
    assert lamb.critical_batch.includes(400) and results["plain"].critical_batch.includes(60)
    assert "it moves the critical batch from" in lamb.verdict and "fewer examples at" in lamb.verdict
    assert results["plain"].critical_ratio is None and results["plain"].verdict == ""


def test_ratios_of_pairs_are_those_that_the_runs_have():
    _, results = compare(plain=draw_runs(5000, 60), mixup=draw_runs(5000, 60, shift=np.log(1.5)))
    rows = results["mixup:0.2"].at_batches
    assert [row.global_batch for row in rows] == [*BATCHES]
    for row in rows:
        assert row.ratio.value == pytest.approx(1.5) and row.pairs == 5 and row.is_worse and not row.is_better
    assert "more at 8 (1.5 times), 32 (1.5 times)" in results["mixup:0.2"].verdict
    assert "not told apart" in results["mixup:0.2"].verdict  # the critical batch


def test_pairs_take_away_the_noise_that_equal_seeds_share():
    plain = draw_runs(5000, 60, noise=0.5)
    own = draw_runs(5000, 60, shift=0.2, noise=0.5)
    _, paired = compare(plain=plain, mixup=own)
    _, mixed_up = compare(plain=plain, mixup=own.assign(examples=own.examples.iloc[::-1].to_numpy()))
    width, other = (
        np.mean([np.log(row.ratio.high / row.ratio.low) for row in results["mixup:0.2"].at_batches])
        for results in (paired, mixed_up)
    )
    assert width < other


def test_equal_recipes_are_not_told_apart():
    runs = draw_runs(5000, 60)
    other = runs.assign(seed=runs.seed + 100)  # no pairs at all
    _, results = compare(plain=runs, mixup=other)
    assert all(row.ratio is None and row.pairs == 0 for row in results["mixup:0.2"].at_batches)
    assert "with 0 pairs" in results["mixup:0.2"].verdict


@pytest.mark.parametrize(
    ("seconds", "chosen", "words"),
    [
        ({"plain": 10.0, "lamb": 5.0}, "lamb", "2 times as fast"),
        ({"plain": 10.0, "lamb": 9.8}, "plain", "less than 5%"),
        ({"plain": 10.0, "lamb": 12.0}, "plain", "no other recipe"),
        ({"lamb": 12.0}, "lamb", "plain has none"),
        ({}, "plain", "no recipe has a plan"),
    ],
)
def test_plan_is_made_with_the_fastest_recipe_that_gains(seconds, chosen, words):
    report, _ = compare(seconds, plain=draw_runs(5000, 60), lamb=draw_runs(5000, 400))
    assert report.chosen == chosen and words in report.why


def test_recipe_without_trials_or_success_says_nothing():
    failed = draw_runs(5000, 60).assign(reached=0)
    report, results = compare({"plain": 3.0}, plain=draw_runs(5000, 60), lamb=failed, mixup=failed.iloc[:0])
    assert results["lamb"].critical_batch is None and results["mixup:0.2"].at_batches == ()
    assert all(row.examples is None and row.reached == 0 for row in results["lamb"].at_batches)
    assert "is not known" in results["lamb"].verdict and report.chosen == "plain"


def test_report_is_read_as_it_was_written():
    report, _ = compare({"plain": 3.0}, plain=draw_runs(5000, 60), lamb=draw_runs(5000, 400))
    assert RecipeReport.from_json(report.to_json()) == report
    with raises_code("file-damaged", "recipes of a sweep"):
        RecipeReport.from_json({"chosen": 1})
