"""Search over recipes: each has as many tries, and pairs have equal seeds at the best rates."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.recipe_choice.recipe_search import PAIRED_SEEDS, RecipeSearch, RecipeTrial, find_best_rates
from equipoise.planning.search import Search

BATCHES = [16, 64, 256]
COLUMNS = [*RecipeTrial._fields, "examples", "reached"]
CRITICAL_BATCHES = {"plain": 64, "lamb": 500}
BEST_RATES = {"plain": 0.1, "lamb": 0.01}


def build_search(**options):
    searches = {recipe: Search(BATCHES, 0.05, lambda batch: 0.01 + batch * 1e-5) for recipe in CRITICAL_BATCHES}
    return RecipeSearch(searches, **options)


def count_examples(trial):
    """Return what a run of a made-up recipe needs: more, the further its rate is from the best one."""
    octaves = np.log2(trial.lr / (BEST_RATES[trial.recipe] * np.sqrt(trial.global_batch / 16)))
    return 5000 * (1 + trial.global_batch / CRITICAL_BATCHES[trial.recipe]) * np.exp(0.1 * octaves**2)


def run_search(search, max_trials=200):
    """Run the trials that a search suggests, one after another, and return the table of them."""
    rows = []
    while len(rows) < max_trials:
        finished = pd.DataFrame(rows, columns=COLUMNS)
        trial = search.suggest(finished)
        if trial is None:
            return finished
        rows.append((*trial, count_examples(trial), 1))
    raise AssertionError("the search does not end")


@pytest.fixture(scope="module")
def runs():
    """Return the trials of a whole search."""
    return run_search(build_search())


def test_recipes_take_turns_while_they_explore(runs):
    counts = runs[runs.seed == 0].recipe.value_counts()
    assert abs(counts["plain"] - counts["lamb"]) <= 4  # one of them may have nothing left to explore
    assert runs.recipe.iloc[:8].value_counts().tolist() == [4, 4]
    assert not runs.duplicated([*RecipeTrial._fields]).any()


def test_all_recipes_have_the_same_seeds_at_the_best_rate_of_each_batch(runs):
    for recipe in CRITICAL_BATCHES:
        own = runs[runs.recipe == recipe]
        for batch, lr in find_best_rates(own).items():
            seeds = set(own[(own.global_batch == batch) & (own.lr == lr)].seed)
            assert seeds >= set(range(PAIRED_SEEDS)), (recipe, batch)


def test_pairs_come_first_when_the_time_to_explore_is_up():
    search = build_search(must_pair=lambda: True)
    first = RecipeTrial("plain", 16, 0.1, 0)
    finished = pd.DataFrame([(*first, 5000.0, 1)], columns=COLUMNS)
    assert search.suggest(finished) == RecipeTrial("plain", 16, 0.1, 1)
    assert search.suggest(pd.DataFrame([], columns=COLUMNS)).seed == 0  # nothing to pair yet


def test_pairs_wait_for_a_running_trial_whose_rate_may_become_the_best(runs):
    search = build_search()
    explored = runs[runs.seed == 0]
    last = RecipeTrial(*explored.iloc[-1][[*RecipeTrial._fields]])
    others = explored.iloc[:-1]
    assert search.suggest(others, [last]) is None and search.depends_on_running(others, [last])
    assert search.suggest(explored).seed == 1


def test_trial_is_hopeless_by_the_best_of_its_own_recipe():
    search = build_search()
    rows = [("plain", 16, 0.1, 0, 5000.0, 1), ("lamb", 16, 0.01, 0, 50_000.0, 1)]
    finished = pd.DataFrame(rows, columns=COLUMNS)
    assert search.is_hopeless(finished, RecipeTrial("plain", 16, 0.2, 0), 13_000)
    assert not search.is_hopeless(finished, RecipeTrial("lamb", 16, 0.2, 0), 13_000)
    assert not search.is_hopeless(finished.iloc[:0], RecipeTrial("lamb", 16, 0.2, 0), 1e9)


def test_lost_trials_are_not_suggested_again():
    search, empty = build_search(), pd.DataFrame([], columns=COLUMNS)
    first = search.suggest(empty)
    assert search.suggest(empty, lost=[first]) != first
    assert search.batches == BATCHES and search.rank_settings(empty) == []


@pytest.mark.parametrize("rows", [[], [("plain", 16, 0.1, 0, 5000.0, 0)]])
def test_no_rate_is_the_best_where_no_run_reached_the_target(rows):
    assert find_best_rates(pd.DataFrame(rows, columns=COLUMNS)) == {}
