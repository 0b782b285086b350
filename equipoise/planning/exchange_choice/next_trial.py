"""Next trial of a sweep for ways of exchange: learning rates, seeds in pairs with exact sums, then intervals.

The policy has no state of its own: the same runs, with the same fits, give the same next trial. For each survivor

1. the learning rate of exact sums at that global batch, half of it, then a third one on the better side;
2. two more seeds at the best of them, and exact runs with these seeds where there are none;
3. for `local:H` two more values of H, with which Hc can be fitted, then a second seed of each;
4. DiLoCo at the best H, where local SGD gains.

A way of exchange that cannot win any more gets no further trials.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.examples_to_target import select_best_lr
from equipoise.planning.exchange_choice.critical_interval import excess_steps
from equipoise.planning.exchange_choice.examples_ratio import (
    ExamplesRatio,
    RatioKey,
    fit_examples_ratio,
    pool_noise_by_exchange,
)
from equipoise.planning.exchange_choice.exchange_bounds import INTERVALS, MIN_GAIN, ExchangeBound, next_interval
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.search import OCTAVE_FACTOR, round_to_half_octave

MAX_EXCHANGE_TRIALS = 12  # of all ways of exchange, with the exact runs that their pairs need
MAX_EXCHANGE_LRS = 3  # at one setting
PAIRED_SEEDS = 3
INTERVAL_SEEDS = 2  # of further values of H
NUM_INTERVALS = 3  # values of H that Hc needs
PRUNE_EXCHANGE_FACTOR = 1.5  # a trial is pruned beyond this multiple of the examples at which it stops to gain
DILOCO_LR_SHARE = 0.25  # of local SGD's rate: the outer momentum lengthens steps; digits reached no target above it
MIN_EXCESS_RATIO = 0.02  # of examples beyond those of exact sums, for a first guess of Hc


class ExchangeTrial(NamedTuple):
    """Trial to run: with virtual workers in one process, or, if `exchange` is empty, with exact sums."""

    exchange: str
    workers: int
    global_batch: int
    lr: float
    seed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialState:
    """What is known when the next trial is chosen."""

    costs: ExchangeCosts
    """closed forms of the step times"""
    runs: pd.DataFrame = field(repr=False)
    """rows of exchange, workers, global_batch, lr, seed, examples and reached"""
    _ratios: dict[RatioKey, ExamplesRatio | None] = field(default_factory=dict, repr=False)

    @cached_property
    def seed_noise(self) -> tuple[float, int]:
        """Standard deviation between seeds, in log examples, and its degrees of freedom."""
        return pool_noise_by_exchange(self.runs)

    def find_ratio(self, bound: ExchangeBound, name: str | None = None) -> ExamplesRatio | None:
        """Return the examples ratio at the setting of a survivor, of it or of another way of exchange."""
        key = RatioKey(name or bound.exchange, bound.workers, bound.global_batch)
        if key not in self._ratios:
            self._ratios[key] = fit_examples_ratio(self.runs, key, self.seed_noise)
        return self._ratios[key]

    def find_best_lr(self, bound: ExchangeBound, name: str) -> float | None:
        """Return the best learning rate of a way of exchange at the setting of a survivor; None without runs."""
        own = select_own_runs(self.runs, name, bound)
        return None if own.empty else float(select_best_lr(own, self.seed_noise[0]).lr.iloc[0])


StageFunction = Callable[[TrialState, ExchangeBound], list[ExchangeTrial]]
"""trials of one stage for a survivor, the most valuable first"""


def suggest_exchange_trial(
    costs: ExchangeCosts,
    survivors: Sequence[ExchangeBound],
    runs: pd.DataFrame,
    *,
    num_trials: int,
    unavailable: Iterable[ExchangeTrial] = (),
) -> ExchangeTrial | None:
    """Return the next trial, or None once no further one can change the answer.

    `runs` has all runs so far, `num_trials` of them were suggested here; those that run or were lost are `unavailable`.
    """
    if num_trials >= MAX_EXCHANGE_TRIALS:
        return None
    columns = (runs[name].tolist() for name in ("exchange", "workers", "global_batch", "lr", "seed"))
    known = {
        ExchangeTrial(name, 0 if parse_exchange(name).is_exact else int(workers), int(batch), float(lr), int(seed))
        for name, workers, batch, lr, seed in zip(*columns, strict=True)
    } | {forget_workers(trial) for trial in unavailable}
    ranked = rank_exchange_trials(TrialState(costs=costs, runs=runs), survivors)
    return next((trial for trial in ranked if forget_workers(trial) not in known), None)


def forget_workers(trial: ExchangeTrial) -> ExchangeTrial:
    """Return a trial without its workers if it has exact sums, which any number of workers take alike."""
    return trial if trial.exchange else trial._replace(workers=0)


def rank_exchange_trials(state: TrialState, survivors: Sequence[ExchangeBound]) -> Iterator[ExchangeTrial]:
    """Yield all trials that are worth it by what is known, the most valuable first."""
    live = [bound for bound in survivors if may_still_win(state, bound, survivors)]
    stages: tuple[StageFunction, ...] = (suggest_lrs, suggest_seed_pairs, suggest_intervals, suggest_diloco)
    for stage in stages:
        for bound in live:
            yield from stage(state, bound)


def may_still_win(state: TrialState, bound: ExchangeBound, survivors: Sequence[ExchangeBound]) -> bool:
    """Return whether a way of exchange may still gain 5 %, and still be the best one; of `local:H` with any H."""
    ratio = state.find_ratio(bound)
    if ratio is None or is_still_searched(state, bound):
        return True
    lowest = max(1.0, ratio.value if ratio.is_lower_bound else ratio.interval.low)
    best = max((lowest_speedup(state, other) for other in survivors if other != bound), default=0.0)
    return highest_speedup(state, bound, lowest) >= max(MIN_GAIN, best)


def highest_speedup(state: TrialState, bound: ExchangeBound, lowest_ratio: float) -> float:
    """Return the largest speed-up of a way of exchange with the least examples that its runs allow, at the best H."""
    if not bound.is_sync:
        return bound.max_speedup / lowest_ratio
    slope = (lowest_ratio - 1) / max(parse_exchange(bound.exchange).interval - 1, 1)
    names = [replace_interval(bound.exchange, interval) for interval in INTERVALS]
    speedups = [bound.max_speedup / time_share(state, bound, name) for name in names]
    return float(np.max([speedup / (1 + slope * (H - 1)) for speedup, H in zip(speedups, INTERVALS, strict=True)]))


def lowest_speedup(state: TrialState, bound: ExchangeBound) -> float:
    """Return the lower end of the speed-up of a way of exchange; 0 without a pair of runs."""
    ratio = state.find_ratio(bound)
    return 0.0 if ratio is None or ratio.is_lower_bound else bound.max_speedup / ratio.interval.high


def is_still_searched(state: TrialState, bound: ExchangeBound) -> bool:
    """Return whether further learning rates are to be tried before a way of exchange is judged."""
    tried = select_own_runs(state.runs, bound.exchange, bound).lr.tolist()
    return any(trial.lr not in tried for trial in suggest_lrs(state, bound))


def select_own_runs(runs: pd.DataFrame, name: str, bound: ExchangeBound) -> pd.DataFrame:
    """Return the runs of a way of exchange at the setting of a survivor; exact sums have any number of workers."""
    here = runs[runs.global_batch == bound.global_batch]
    if not name:
        return here[[parse_exchange(other).is_exact for other in here.exchange]]
    return here[(here.exchange == name) & (here.workers == bound.workers)]


def suggest_lrs(state: TrialState, bound: ExchangeBound) -> list[ExchangeTrial]:
    """Suggest the best learning rate of exact sums and half of it, then an octave beyond the better one."""
    exact_lr = state.find_best_lr(bound, "") or bound.lr
    if exact_lr is None:
        return []
    rates = [exact_lr, round_to_half_octave(exact_lr / OCTAVE_FACTOR)]
    tried = set(select_own_runs(state.runs, bound.exchange, bound).lr)
    if tried >= set(rates) and len(tried) < MAX_EXCHANGE_LRS:
        best = state.find_best_lr(bound, bound.exchange) or exact_lr
        rates.append(round_to_half_octave(best * OCTAVE_FACTOR if best == max(tried) else best / OCTAVE_FACTOR))
    return [ExchangeTrial(bound.exchange, bound.workers, bound.global_batch, lr, 0) for lr in rates]


def suggest_seed_pairs(
    state: TrialState, bound: ExchangeBound, name: str | None = None, num_seeds: int = PAIRED_SEEDS
) -> list[ExchangeTrial]:
    """Suggest seeds at the best learning rate, each with the exact run that it is compared with."""
    name = name or bound.exchange
    lr = state.find_best_lr(bound, name) or guess_lr(state, bound, name)
    exact_lr = state.find_best_lr(bound, "")
    ratio = state.find_ratio(bound, name)
    if lr is None or exact_lr is None or (ratio and ratio.is_lower_bound):
        return []
    return [
        ExchangeTrial(exchange, bound.workers, bound.global_batch, rate, seed)
        for seed in range(num_seeds)
        for exchange, rate in (("", exact_lr), (name, lr))
    ]


def guess_lr(state: TrialState, bound: ExchangeBound, name: str) -> float | None:
    """Return a first learning rate from the best one of the survivor: the same, or a lower one for DiLoCo."""
    lr = state.find_best_lr(bound, bound.exchange)
    is_lower = parse_exchange(name).sync == "diloco" != parse_exchange(bound.exchange).sync
    return round_to_half_octave(DILOCO_LR_SHARE * lr) if lr and is_lower else lr


def suggest_intervals(state: TrialState, bound: ExchangeBound) -> list[ExchangeTrial]:
    """Suggest two further values of H about the best one by what is known of Hc, and a second seed of each."""
    if not bound.is_sync:
        return []
    names = list_interval_names(state, bound)
    while len(names) < NUM_INTERVALS:
        tried = [parse_exchange(name).interval for name in names]
        interval = next_interval(bound, state.costs, guess_critical_steps(state, bound), tried)
        names.append(replace_interval(bound.exchange, interval))
        if names[-1] not in set(state.runs.exchange):
            break  # its runs decide on the next one
    return [
        trial
        for num_seeds in range(1, INTERVAL_SEEDS + 1)
        for name in names[1:]
        for trial in suggest_seed_pairs(state, bound, name, num_seeds)
    ]


def suggest_diloco(state: TrialState, bound: ExchangeBound) -> list[ExchangeTrial]:
    """Suggest DiLoCo at the interval at which local SGD is the best so far, if it gains there."""
    if not bound.is_sync or lowest_speedup(state, bound) < 1:
        return []
    names = list_interval_names(state, bound)
    ratios = {name: ratio for name in names if (ratio := state.find_ratio(bound, name))}
    best = min(ratios, key=lambda name: ratios[name].value * time_share(state, bound, name))
    return suggest_seed_pairs(state, bound, best.replace("local", "diloco", 1), INTERVAL_SEEDS)


def time_share(state: TrialState, bound: ExchangeBound, name: str) -> float:
    """Return the step time of a way of exchange over that of a survivor, at its setting."""
    setting = bound.step_settings
    own, reference = (float(state.costs.step_seconds(other, setting)[0]) for other in (name, bound.exchange))
    return own / reference


def list_interval_names(state: TrialState, bound: ExchangeBound) -> list[str]:
    """Return the survivor, and the other values of H that have runs at its setting."""
    method = parse_exchange(bound.exchange)
    here = state.runs[(state.runs.workers == bound.workers) & (state.runs.global_batch == bound.global_batch)]
    names = [name for name in here.exchange.unique() if name != bound.exchange]
    same = [
        name
        for name in names
        if (parse_exchange(name).sync, parse_exchange(name).interval_family) == (method.sync, method.interval_family)
    ]
    return [bound.exchange, *same]


def guess_critical_steps(state: TrialState, bound: ExchangeBound) -> float:
    """Return Hc / (1 - 1/n) by the ratios so far, each by itself, in the geometric mean."""
    guesses = [
        (parse_exchange(name).interval - 1) / max(ratio.value - 1, MIN_EXCESS_RATIO)
        for name in list_interval_names(state, bound)
        if (ratio := state.find_ratio(bound, name)) and excess_steps(parse_exchange(name).interval, bound.workers)
    ]
    return float(np.exp(np.mean(np.log(guesses)))) if guesses else 1.0


def replace_interval(name: str, interval: int) -> str:
    """Return the name of a way of exchange with another interval."""
    head, separator, rest = name.partition("/")
    return f"{head.partition(':')[0]}:{interval}{separator}{rest}"


def limit_trial_examples(bound: ExchangeBound, exact_examples: float) -> float:
    """Return the examples beyond which a trial is pruned: far more than those at which it stops to gain."""
    return PRUNE_EXCHANGE_FACTOR * exact_examples * bound.max_speedup / MIN_GAIN
