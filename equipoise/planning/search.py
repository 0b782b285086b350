"""Search policy of a sweep: which trial to run next, and when to prune a running one.

The policy has no state of its own: the same finished and running trials, with the same step times,
give the same next trial. It has three stages:

1. a coarse ladder of global batches, each with the learning rate of the square-root rule; those
   that look hopeless after the smaller ones wait until learning rates and neighbours were tried;
2. at the batches that may still win, learning rates to both sides until the best is interior,
   and the batches next to the best one;
3. further seeds for the best setting and its rivals, until they are significantly apart.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from equipoise.number_bounds import MAX_LEARNING_RATE, MIN_LEARNING_RATE
from equipoise.planning.setting_runs import (
    SettingRuns,
    best_examples_by_batch,
    expected_examples,
    extrapolate_examples,
    group_by_setting,
    pool_seed_noise,
)

OCTAVE_FACTOR = 2.0
INITIAL_BATCH_FACTOR = 4.0  # between neighbours on the first ladder of batches
CONTENDER_FACTOR = 1.5  # a batch may still win while its time is below this times OCTAVE_FACTOR times the best
PRUNE_FACTOR = 2.5  # a trial is pruned beyond this multiple of the best average: good settings have unlucky runs too
LR_REACH_OCTAVES = 4  # learning rates are searched this far to either side of the square-root rule
GRID_LR_REACH_OCTAVES = 2  # reach of the full grid to either side of the rule
MIN_CONTENDER_SEEDS = 5  # fewest seeds of the best setting and its rivals
MAX_SEEDS_PER_SETTING = 8
MAX_LRS_PER_BATCH = 6
MAX_CONTENDERS = 3  # most rivals of the best setting that get further seeds
MIN_RANKING_NOISE = 0.05  # between seeds, in log examples
POOLED_NOISE_RUNS = 2  # weight, in runs, of the noise of all settings beside a setting's own runs
SIGNIFICANT_STANDARD_ERRORS = 2.0  # distance from the best beyond which a setting gets no more seeds

LrBounds = tuple[float, float]
UNBOUNDED_LR: LrBounds = (MIN_LEARNING_RATE, MAX_LEARNING_RATE)

SearchStage = Literal["ladder", "learning rate", "batch", "slow batch", "seed", "grid", "spare slot"]
"""part of the search that a trial belongs to"""
StepSecondsFunction = Callable[[int], float]
"""seconds per step at a global batch, on the number of workers that is fastest there"""


class Suggestion(NamedTuple):
    """Setting and seed of a trial to run."""

    global_batch: int
    lr: float
    seed: int


class SettingResult(NamedTuple):
    """Result of one batch at one learning rate over all seeds; infinitely slow if no run reached the target."""

    global_batch: int
    lr: float
    seconds: float
    """expected seconds to the target"""
    log_error: float
    """standard error of the log of `seconds`"""
    num_seeds: int


class Search:
    """Search policy of one sweep, in three adaptive stages."""

    lr_reach_octaves = LR_REACH_OCTAVES
    """octaves searched to either side of the square-root rule"""

    def __init__(
        self,
        batches: Sequence[int],
        base_lr: float,
        step_seconds: StepSecondsFunction,
        lr_bounds: LrBounds = UNBOUNDED_LR,
    ) -> None:
        """Create the policy; `base_lr` should be within two octaves of the best learning rate at the smallest batch."""
        self.batches = sorted(batches)
        self.lr_bounds = lr_bounds
        self.base_lr = base_lr
        self.step_seconds = step_seconds
        self.noise_scale: float | None = None  # in examples, once a trial has measured it

    def suggest(
        self, finished: pd.DataFrame, running: Iterable[Suggestion] = (), lost: Iterable[Suggestion] = ()
    ) -> Suggestion | None:
        """Return the next trial, or None once the best settings are apart; `lost` trials are not suggested again.

        While a running trial decides what comes next, a free slot gets an extra seed of a good setting rather than
        nothing: the process of an idle slot may be ended, and takes seconds to start again.
        """
        busy = set(running)
        known = zip(*(finished[name].tolist() for name in ("global_batch", "lr", "seed")), strict=True)
        ranked = self.rank_suggestions(finished)
        extra = self._extra_seeds(finished) if self.depends_on_running(finished, busy) else []
        excluded: set[tuple[float, ...]] = {*busy, *known, *lost}
        return next((trial for trial in [*ranked, *extra] if trial not in excluded), None)

    def depends_on_running(self, finished: pd.DataFrame, running: Iterable[Suggestion]) -> bool:
        """Return whether a running trial may still change the next suggestion."""
        return not set(running).isdisjoint(self.rank_suggestions(finished))

    def rank_suggestions(self, finished: pd.DataFrame) -> list[Suggestion]:
        """Return suggestions, the most valuable first."""
        return [trial for trials in self.list_stages(finished).values() for trial in trials]

    def list_stages(self, finished: pd.DataFrame) -> dict[SearchStage, list[Suggestion]]:
        """Return the suggestions of each stage, the most valuable first: ladder, learning rates, batches, then seeds.

        A batch of the ladder waits for learning rates while the smaller ones let expect that its trial would be pruned.
        """
        ladder = [Suggestion(batch, self.sqrt_scaled_lr(batch), 0) for batch in self.initial_batches()]
        if finished.empty:
            return {"ladder": ladder}
        settings = self.rank_settings(finished)
        standings, examples = fastest_by_batch(settings), best_examples_by_batch(finished)
        hopeless = [trial for trial in ladder if self._looks_hopeless(trial.global_batch, examples, settings[0])]
        return {
            "ladder": [trial for trial in ladder if trial not in hopeless],
            "learning rate": self._suggest_lrs(finished, standings),
            "batch": self._suggest_batches(standings),
            "slow batch": hopeless,
            "seed": self._suggest_seeds(settings),
        }

    def _looks_hopeless(self, batch: int, examples: Mapping[float, float], best: SettingResult) -> bool:
        """Return whether a trial at a batch would be pruned if it took what the smaller batches let expect."""
        return should_prune(extrapolate_examples(examples, batch) / batch * self.step_seconds(batch), best.seconds)

    def _extra_seeds(self, finished: pd.DataFrame) -> list[Suggestion]:
        """Return further seeds of the best settings, beyond what the plan needs, to keep free slots busy."""
        if finished.empty:
            return []
        best = [setting for setting in self.rank_settings(finished)[:MAX_CONTENDERS] if np.isfinite(setting.seconds)]
        return [
            Suggestion(setting.global_batch, setting.lr, seed)
            for seed in range(MAX_SEEDS_PER_SETTING)
            for setting in best
        ]

    def initial_batches(self) -> list[int]:
        """Return the first ladder of batches, from smallest to largest, with the batch nearest a known noise scale."""
        count = max(2, round(np.log(self.batches[-1] / self.batches[0]) / np.log(INITIAL_BATCH_FACTOR)) + 1)
        targets = [*np.geomspace(self.batches[0], self.batches[-1], count), *filter(None, [self.noise_scale])]
        return sorted({find_nearest_batch(self.batches, target) for target in targets})

    def sqrt_scaled_lr(self, batch: int) -> float:
        """Return the first learning rate of a batch, which grows with the square root of the batch."""
        return self.clip_lr(round_to_half_octave(self.base_lr * np.sqrt(batch / self.batches[0])))

    def clip_lr(self, lr: float) -> float:
        """Return the nearest learning rate within the bounds."""
        return min(max(lr, self.lr_bounds[0]), self.lr_bounds[1])

    def candidate_lrs(self, batch: int) -> list[float]:
        """Return the learning rates around the square-root rule, an octave apart."""
        octaves = range(-self.lr_reach_octaves, self.lr_reach_octaves + 1)
        return sorted(
            {self.clip_lr(round_to_half_octave(self.sqrt_scaled_lr(batch) * OCTAVE_FACTOR**k)) for k in octaves}
        )

    def _suggest_lrs(self, finished: pd.DataFrame, batch_results: list[SettingResult]) -> list[Suggestion]:
        """Suggest the learning rates to both sides of the best one, at each batch that may still win."""
        suggestions = []
        best = batch_results[0]
        index = self.batches.index(best.global_batch)
        neighbours = self.batches[max(index - 1, 0) : index + 2]  # kept even if their first rate was a poor one
        for result in batch_results:
            is_slow = result.seconds > CONTENDER_FACTOR * OCTAVE_FACTOR * best.seconds < np.inf
            if is_slow and result.global_batch not in neighbours:
                continue
            tried = set(finished.lr[finished.global_batch == result.global_batch])
            sides = (round_to_half_octave(result.lr * OCTAVE_FACTOR), round_to_half_octave(result.lr / OCTAVE_FACTOR))
            if not np.isfinite(result.seconds):  # diverged or too slow: go beyond both ends of what was tried
                sides = (
                    round_to_half_octave(min(tried) / OCTAVE_FACTOR),
                    round_to_half_octave(max(tried) * OCTAVE_FACTOR),
                )
            lrs = self.candidate_lrs(result.global_batch)
            if len(tried) < MAX_LRS_PER_BATCH:
                suggestions += [Suggestion(result.global_batch, lr, 0) for lr in sides if lrs[0] <= lr <= lrs[-1]]
        return suggestions

    def _suggest_batches(self, batch_results: list[SettingResult]) -> list[Suggestion]:
        """Suggest the untried neighbours of the best batch, at its learning rate scaled by the square-root rule."""
        best = batch_results[0]
        index = self.batches.index(best.global_batch)
        neighbours = [self.batches[i] for i in (index + 1, index - 1) if 0 <= i < len(self.batches)]
        tried = {result.global_batch for result in batch_results}
        lrs = {b: self.clip_lr(round_to_half_octave(best.lr * np.sqrt(b / best.global_batch))) for b in neighbours}
        return [Suggestion(b, lrs[b], 0) for b in neighbours if b not in tried]

    def _suggest_seeds(self, results: list[SettingResult]) -> list[Suggestion]:
        """Suggest further seeds for the best setting and its rivals, the ones with the fewest seeds first.

        Rivals are settings rather than batches, since a learning rate may look best by luck.
        """
        best = results[0]
        rivals = [rival for rival in results[1:] if not is_significantly_slower(best, rival)][:MAX_CONTENDERS]
        if not rivals and best.num_seeds >= MIN_CONTENDER_SEEDS:
            return []
        contenders = sorted([best, *rivals], key=lambda setting: (setting.num_seeds, setting.seconds))
        next_seeds = [
            Suggestion(setting.global_batch, setting.lr, setting.num_seeds)
            for setting in contenders
            if setting.num_seeds < MAX_SEEDS_PER_SETTING
        ]
        return next_seeds + [
            Suggestion(setting.global_batch, setting.lr, seed)
            for setting in contenders
            for seed in range(setting.num_seeds + 1, MIN_CONTENDER_SEEDS)
        ]

    def rank_settings(self, finished: pd.DataFrame) -> list[SettingResult]:
        """Return the result of each tried setting (batch and learning rate), the fastest first."""
        settings = group_by_setting(finished)
        noise = max(pool_seed_noise(settings.values()), MIN_RANKING_NOISE)
        results = []
        for (batch, lr), runs in settings.items():
            seconds = expected_examples(runs) / batch * self.step_seconds(int(batch))
            results.append(SettingResult(int(batch), lr, seconds, log_standard_error(runs, noise), len(runs.examples)))
        return sorted(results, key=lambda result: (result.seconds, result.global_batch, result.lr))


class GridSearch(Search):
    """Full grid of each batch with five learning rates and all seeds, the baseline that a policy is judged by."""

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
        lrs = {batch: self.candidate_lrs(batch) for batch in self.batches}
        self.all_suggestions = [
            Suggestion(batch, lr, seed) for seed in range(num_seeds) for batch in self.batches for lr in lrs[batch]
        ]

    def list_stages(self, finished: pd.DataFrame) -> dict[SearchStage, list[Suggestion]]:
        return {"grid": self.all_suggestions}

    def _extra_seeds(self, finished: pd.DataFrame) -> list[Suggestion]:
        return []


def fastest_by_batch(results: list[SettingResult]) -> list[SettingResult]:
    """Return the result of each tried batch at its best learning rate; `results` must be ranked by speed."""
    best: dict[int, SettingResult] = {}
    for result in results:
        best.setdefault(result.global_batch, result)
    return list(best.values())


def should_prune(seconds: float, best_seconds: float) -> bool:
    """Return whether a trial that has run for `seconds` is already much slower than the best setting."""
    return seconds > PRUNE_FACTOR * best_seconds


def log_standard_error(setting_runs: SettingRuns, seed_noise: float) -> float:
    """Return the standard error of the log of the expected examples of one setting.

    `seed_noise` is the standard deviation between seeds pooled over all settings. A setting that scatters more,
    or whose runs miss the target, has a larger error.
    """
    runs, reached = len(setting_runs.examples), int(setting_runs.reached.sum())
    if not reached:
        return np.inf
    variance = (POOLED_NOISE_RUNS * seed_noise**2 + setting_runs.sum_of_squares) / (POOLED_NOISE_RUNS + reached - 1)
    return float(np.sqrt(variance / runs + (1 - reached / runs) / reached))


def is_significantly_slower(first: SettingResult, second: SettingResult) -> bool:
    """Return whether the second setting is slower than the first beyond the noise between seeds."""
    if not np.isfinite(second.seconds):
        return True
    margin = SIGNIFICANT_STANDARD_ERRORS * float(np.hypot(first.log_error, second.log_error))
    return float(np.log(second.seconds / first.seconds)) > margin


def round_to_half_octave(lr: float) -> float:
    """Round a learning rate to the nearest half octave, so that equal suggestions are equal numbers."""
    return float(f"{2 ** (round(2 * np.log2(lr)) / 2):.6g}")


def find_nearest_batch(batches: Sequence[int], target_batch: float) -> int:
    """Return the batch closest to a target by ratio."""
    return min(batches, key=lambda batch: abs(np.log(batch / target_batch)))
