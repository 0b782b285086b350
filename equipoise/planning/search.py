"""Which trial next, and when a running one can no longer matter.

A policy without a state of its own: the same finished and running trials, with the same step times,
ask for the same next trial. It climbs in three stages:

1. a coarse ladder of global batches, each with its learning rate by the square-root rule;
2. at the batches that may still win, learning rates to both sides until the best is interior,
   and batches between the best and its neighbours;
3. further seeds for the best plan and its runner-up, until they are apart.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.examples_to_target import SettingRuns, expected_examples, group_by_setting, pool_seed_noise

OCTAVE_FACTOR = 2.0
INITIAL_BATCH_FACTOR = 4.0  # between the batches of the first ladder
CONTENDER_FACTOR = 1.5  # a batch whose time may be within this factor of the best one is still looked at
PRUNE_FACTOR = 2.5  # times the best setting's average after which a trial is ended: a good one may have an unlucky run
LR_REACH_OCTAVES = 4  # octaves to either side of the rule within which learning rates are looked for
GRID_LR_REACH_OCTAVES = 2  # the same, of the whole grid
MIN_CONTENDER_SEEDS = 5  # of the best plan and its runner-up at least
MAX_SEEDS_PER_SETTING = 8
MAX_LRS_PER_BATCH = 6
MAX_CONTENDERS = 3  # settings beside the best that get further seeds
MIN_RANKING_NOISE = 0.05  # between seeds, in log examples
POOLED_NOISE_RUNS = 2  # runs that the noise of all settings counts as, beside a setting's own
SIGNIFICANT_STANDARD_ERRORS = 2.0  # standard errors between the two best, beyond which more seeds change nothing

LrBounds = tuple[float, float]
UNBOUNDED_LR: LrBounds = (0.0, float("inf"))  # learning rates

StepSecondsFunction = Callable[[int], float]
"""seconds of a step at a global batch, on the workers that are fastest there"""


class Suggestion(NamedTuple):
    """A trial to run."""

    global_batch: int
    lr: float
    seed: int


class SettingResult(NamedTuple):
    """What is known of one batch at one learning rate; infinitely slow if it never reached the target."""

    global_batch: int
    lr: float
    seconds: float
    """to the target"""
    log_error: float
    """of its log"""
    num_seeds: int


class Search:
    """The policy for one sweep."""

    lr_reach_octaves = LR_REACH_OCTAVES
    """octaves to either side of the rule"""

    def __init__(
        self,
        batches: Sequence[int],
        base_lr: float,
        step_seconds: StepSecondsFunction,
        lr_bounds: LrBounds = UNBOUNDED_LR,
    ) -> None:
        """`lr` is right at the smallest of `batches` to an octave or two; no rate outside `bounds` is tried."""
        self.batches = sorted(batches)
        self.lr_bounds = lr_bounds
        self.base_lr = base_lr
        self.step_seconds = step_seconds
        self.noise_scale: float | None = None  # the noise scale in examples, once a trial has told it

    def suggest(
        self, finished: pd.DataFrame, running: Iterable[Suggestion] = (), lost: Iterable[Suggestion] = ()
    ) -> Suggestion | None:
        """The next trial; None once the plan and its runner-up are apart. What is `lost` is not asked for again.

        While a trial runs that decides what comes next, a slot gets a spare one sooner than nothing: the
        process of a slot that waits may be ended, and takes seconds to start again.
        """
        busy = set(running)
        known = zip(*(finished[name].tolist() for name in ("global_batch", "lr", "seed")), strict=True)
        wanted = self._ranked_suggestions(finished)
        spare = self._extra_seeds(finished) if self.depends_on_running(finished, busy) else []
        asked: set[tuple[float, ...]] = {*busy, *known, *lost}
        return next((one for one in [*wanted, *spare] if one not in asked), None)

    def depends_on_running(self, finished: pd.DataFrame, running: Iterable[Suggestion]) -> bool:
        """Whether a trial under way may still change what is asked for next."""
        return not set(running).isdisjoint(self._ranked_suggestions(finished))

    def _ranked_suggestions(self, finished: pd.DataFrame) -> list[Suggestion]:
        """In order of worth. What follows from the trials so far comes last, for slots that would wait for the rest."""
        first = [Suggestion(batch, self.sqrt_scaled_lr(batch), 0) for batch in self.initial_batches()]
        if finished.empty:
            return first
        settings = self.rank_settings(finished)
        standings = fastest_by_batch(settings)
        return [
            *first,
            *self._suggest_lrs(finished, standings),
            *self._suggest_batches(standings),
            *self._suggest_seeds(settings),
        ]

    def _extra_seeds(self, finished: pd.DataFrame) -> list[Suggestion]:
        """Further seeds of the best settings, though they are known well enough to plan with."""
        best = (
            [one for one in self.rank_settings(finished)[:MAX_CONTENDERS] if np.isfinite(one.seconds)]
            if len(finished)
            else []
        )
        return [Suggestion(one.global_batch, one.lr, seed) for seed in range(MAX_SEEDS_PER_SETTING) for one in best]

    def initial_batches(self) -> list[int]:
        """The first batches: from the smallest to the largest in wide strides, and the noise scale if it is known."""
        count = max(2, round(np.log(self.batches[-1] / self.batches[0]) / np.log(INITIAL_BATCH_FACTOR)) + 1)
        marks = [
            *np.geomspace(self.batches[0], self.batches[-1], count),
            *([self.noise_scale] if self.noise_scale else []),
        ]
        return sorted({find_nearest_batch(self.batches, mark) for mark in marks})

    def sqrt_scaled_lr(self, batch: int) -> float:
        """A first learning rate: it grows with the root of the batch."""
        return self.clip_lr(round_to_half_octave(self.base_lr * np.sqrt(batch / self.batches[0])))

    def clip_lr(self, lr: float) -> float:
        """The rate that is allowed and nearest."""
        return min(max(lr, self.lr_bounds[0]), self.lr_bounds[1])

    def candidate_lrs(self, batch: int) -> list[float]:
        """Learning rates about the rule, in octaves."""
        steps = range(-self.lr_reach_octaves, self.lr_reach_octaves + 1)
        return sorted(
            {self.clip_lr(round_to_half_octave(self.sqrt_scaled_lr(batch) * OCTAVE_FACTOR**k)) for k in steps}
        )

    def _suggest_lrs(self, finished: pd.DataFrame, batch_results: list[SettingResult]) -> list[Suggestion]:
        """Learning rates beside the best one, where it is at the edge and the batch may still win."""
        wanted = []
        best = batch_results[0]
        place = self.batches.index(best.global_batch)
        beside = self.batches[max(place - 1, 0) : place + 2]  # next to the best, a poor first rate decides nothing
        for one in batch_results:
            if (
                one.global_batch not in beside
                and one.seconds > CONTENDER_FACTOR * OCTAVE_FACTOR * best.seconds < np.inf
            ):
                continue
            tried = set(finished.lr[finished.global_batch == one.global_batch])
            sides = (round_to_half_octave(one.lr * OCTAVE_FACTOR), round_to_half_octave(one.lr / OCTAVE_FACTOR))
            if not np.isfinite(one.seconds):  # it blew up or starved: try both sides of all that was tried
                sides = (
                    round_to_half_octave(min(tried) / OCTAVE_FACTOR),
                    round_to_half_octave(max(tried) * OCTAVE_FACTOR),
                )
            rates = self.candidate_lrs(one.global_batch)
            if len(tried) < MAX_LRS_PER_BATCH:
                wanted += [Suggestion(one.global_batch, rate, 0) for rate in sides if rates[0] <= rate <= rates[-1]]
        return wanted

    def _suggest_batches(self, batch_results: list[SettingResult]) -> list[Suggestion]:
        """Batches beside the best one, its neighbours on the ladder, with the rate that the best suggests."""
        best = batch_results[0]
        place = self.batches.index(best.global_batch)
        beside = [self.batches[i] for i in (place + 1, place - 1) if 0 <= i < len(self.batches)]
        tried = {one.global_batch for one in batch_results}
        rate = {b: self.clip_lr(round_to_half_octave(best.lr * np.sqrt(b / best.global_batch))) for b in beside}
        return [Suggestion(b, rate[b], 0) for b in beside if b not in tried]

    def _suggest_seeds(self, results: list[SettingResult]) -> list[Suggestion]:
        """Further seeds for those that may be the best: settings, not batches, since a lucky rate may be a poor one."""
        best = results[0]
        rivals = [one for one in results[1:] if not is_significantly_slower(best, one)][:MAX_CONTENDERS]
        if not rivals and best.num_seeds >= MIN_CONTENDER_SEEDS:
            return []
        fewest = sorted([best, *rivals], key=lambda one: (one.num_seeds, one.seconds))
        due = [
            Suggestion(one.global_batch, one.lr, one.num_seeds)
            for one in fewest
            if one.num_seeds < MAX_SEEDS_PER_SETTING
        ]
        return due + [
            Suggestion(one.global_batch, one.lr, seed)
            for one in fewest
            for seed in range(one.num_seeds + 1, MIN_CONTENDER_SEEDS)
        ]

    def rank_settings(self, finished: pd.DataFrame) -> list[SettingResult]:
        """Every batch with every learning rate tried, the fastest first."""
        settings = group_by_setting(finished)
        noise = max(pool_seed_noise(settings.values()), MIN_RANKING_NOISE)
        found = []
        for (batch, lr), seeds in settings.items():
            seconds = expected_examples(seeds) / batch * self.step_seconds(int(batch))
            found.append(SettingResult(int(batch), lr, seconds, log_standard_error(seeds, noise), len(seeds.examples)))
        return sorted(found, key=lambda one: (one.seconds, one.global_batch, one.lr))


class GridSearch(Search):
    """Every batch with five learning rates and every seed: what a policy is judged by."""

    lr_reach_octaves = GRID_LR_REACH_OCTAVES

    def __init__(
        self,
        batches: Sequence[int],
        base_lr: float,
        step_seconds: StepSecondsFunction,
        num_seeds: int,
        lr_bounds: LrBounds = UNBOUNDED_LR,
    ) -> None:
        super().__init__(batches, base_lr, step_seconds, lr_bounds)
        rates = {batch: self.candidate_lrs(batch) for batch in self.batches}
        self.all_suggestions = [
            Suggestion(batch, lr, seed) for seed in range(num_seeds) for batch in self.batches for lr in rates[batch]
        ]

    def _ranked_suggestions(self, finished: pd.DataFrame) -> list[Suggestion]:
        return self.all_suggestions

    def _extra_seeds(self, finished: pd.DataFrame) -> list[Suggestion]:
        return []


def fastest_by_batch(results: list[SettingResult]) -> list[SettingResult]:
    """Each batch tried, at the best of its rates, the fastest first."""
    best: dict[int, SettingResult] = {}
    for one in results:
        best.setdefault(one.global_batch, one)
    return list(best.values())


def should_prune(seconds: float, best_seconds: float) -> bool:
    """Whether a running trial that has taken `seconds` so far is already much slower than the best setting."""
    return seconds > PRUNE_FACTOR * best_seconds


def log_standard_error(setting_runs: SettingRuns, seed_noise: float) -> float:
    """Standard error of the log of the expected examples of one setting.

    `noise` is what settings have between seeds in common; one with a scatter of its own, or runs that
    fail, is known less well.
    """
    runs, reached = len(setting_runs.examples), int(setting_runs.reached.sum())
    if not reached:
        return np.inf
    own = (POOLED_NOISE_RUNS * seed_noise**2 + setting_runs.sum_of_squares) / (POOLED_NOISE_RUNS + reached - 1)
    return float(np.sqrt(own / runs + (1 - reached / runs) / reached))


def is_significantly_slower(first: SettingResult, second: SettingResult) -> bool:
    """Whether the second is slower beyond what chance between seeds makes."""
    if not np.isfinite(second.seconds):
        return True
    return float(np.log(second.seconds / first.seconds)) > SIGNIFICANT_STANDARD_ERRORS * float(
        np.hypot(first.log_error, second.log_error)
    )


def round_to_half_octave(lr: float) -> float:
    """The nearest half octave: rates that are asked for twice are the same number."""
    return float(f"{2 ** (round(2 * np.log2(lr)) / 2):.6g}")


def find_nearest_batch(batches: Sequence[int], target_batch: float) -> int:
    """The batch closest to a mark, by ratio."""
    return min(batches, key=lambda batch: abs(np.log(batch / target_batch)))
