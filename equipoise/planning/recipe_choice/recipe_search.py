"""Search policy of a sweep over recipes: each has its own search of batches and rates, then pairs of equal seeds.

Recipes take turns, so that all have the same number of tries. Once nothing is left to explore, or the time for it is
up, each batch of each recipe runs at its best learning rate with the same further seeds, so that recipes can be
compared in pairs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from equipoise.planning.examples_to_target import select_best_lr
from equipoise.planning.search import MIN_CONTENDER_SEEDS, Search, Suggestion, should_prune
from equipoise.planning.setting_runs import group_by_setting, pool_seed_noise

PAIRED_SEEDS = 3  # of each batch at the best learning rate of each recipe


class RecipeTrial(NamedTuple):
    """Recipe, setting and seed of a trial to run."""

    recipe: str
    global_batch: int
    lr: float
    seed: int

    @property
    def setting(self) -> Suggestion:
        """The trial as the search of its recipe knows it."""
        return Suggestion(self.global_batch, self.lr, self.seed)


class RecipeSearch:
    """Search policy over recipes, in the place of `Search`; `finished` has a column with the recipe of each trial."""

    noise_scale = None

    def __init__(self, searches: Mapping[str, Search], must_pair: Callable[[], bool] = lambda: False) -> None:
        """Search with one policy for each recipe; `must_pair` tells that the time to explore is up."""
        self.searches, self.must_pair = searches, must_pair

    @property
    def batches(self) -> list[int]:
        """Global batches of the sweep."""
        return next(iter(self.searches.values())).batches

    def suggest(
        self, finished: pd.DataFrame, running: Iterable[RecipeTrial] = (), lost: Iterable[RecipeTrial] = ()
    ) -> RecipeTrial | None:
        """Return the next trial; None once all are done, or while a running one decides what comes next."""
        columns = (finished[name].tolist() for name in RecipeTrial._fields)
        known = {RecipeTrial(*values) for values in zip(*columns, strict=True)}
        excluded = {*running, *lost, *known}
        explored = self._explore(finished, excluded)
        paired = (trial for trial in self._list_pairs(finished) if trial not in excluded)
        if self.must_pair():
            return next(paired, None) or next(explored, None)
        trial = next(explored, None)
        is_open = any(other.seed == 0 for other in running)  # its rate may become the best one
        return trial if trial or is_open else next(paired, None)

    def depends_on_running(self, finished: pd.DataFrame, running: Iterable[RecipeTrial]) -> bool:
        """Return whether a running trial may still change the next suggestion: each one may."""
        return bool(set(running))

    def rank_settings(self, finished: pd.DataFrame) -> list[object]:
        """Return nothing: recipes are ranked once all have ended."""
        return []

    def is_hopeless(self, finished: pd.DataFrame, trial: RecipeTrial, examples_seen: float) -> bool:
        """Return whether a trial has taken longer than the best setting of its recipe in all, by a safe factor."""
        search, own = self.searches[trial.recipe], finished[finished.recipe == trial.recipe]
        ranked = search.rank_settings(own) if len(own) else []
        seconds = examples_seen / trial.global_batch * search.step_seconds(trial.global_batch)
        return bool(ranked) and should_prune(seconds, ranked[0].seconds)

    def _explore(self, finished: pd.DataFrame, excluded: set[RecipeTrial]) -> Iterator[RecipeTrial]:
        """Yield batches and rates to try, of the recipe with the fewest trials first."""
        counts = {recipe: sum(trial.recipe == recipe for trial in excluded) for recipe in self.searches}
        for recipe in sorted(self.searches, key=lambda name: counts[name]):
            for setting in self.searches[recipe].rank_suggestions(finished[finished.recipe == recipe]):
                trial = RecipeTrial(recipe, *setting)
                if not trial.seed and trial not in excluded:
                    yield trial

    def _list_pairs(self, finished: pd.DataFrame) -> Iterator[RecipeTrial]:
        """Yield further seeds of the best rates of all recipes, then of the fastest setting of each."""
        rates = {recipe: find_best_rates(finished[finished.recipe == recipe]) for recipe in self.searches}
        batches = sorted({batch for own in rates.values() for batch in own})
        for seed in range(1, PAIRED_SEEDS):
            for batch in batches:
                yield from (
                    RecipeTrial(recipe, batch, own[batch], seed) for recipe, own in rates.items() if batch in own
                )
        for seed in range(PAIRED_SEEDS, MIN_CONTENDER_SEEDS):
            for recipe, own in rates.items():
                if own:
                    step_seconds = self.searches[recipe].step_seconds
                    runs = finished[finished.recipe == recipe]
                    examples = runs[runs.reached == 1].groupby("global_batch").examples.mean()
                    seconds = {batch: examples[batch] / batch * step_seconds(batch) for batch in own}
                    batch = min(own, key=lambda name: seconds[name])
                    yield RecipeTrial(recipe, batch, own[batch], seed)


def find_best_rates(runs: pd.DataFrame) -> dict[int, float]:
    """Return the best learning rate of each batch at which a run of one recipe has reached the target."""
    if runs.empty:
        return {}
    best = select_best_lr(runs, pool_seed_noise(group_by_setting(runs).values()))
    best = best[best.reached == 1]
    return dict(zip(best.global_batch.astype(int).tolist(), best.lr.tolist(), strict=True))
