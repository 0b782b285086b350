"""Next trial of a sweep for ways of exchange: learning rates, seeds in pairs with exact sums, then intervals.

The policy has no state of its own: the same runs, with the same fits, give the same next trial. For each survivor

1. the learning rate of exact sums at that global batch, half of it, then a third one on the better side; for `async:S`
   two of them without momentum too, then a third one at the better momentum;
2. two more seeds at the best of them, and exact runs with these seeds where there are none;
3. for `local:H` two more values of H, with which Hc can be fitted, then a second seed of each; of S for `async:S`;
4. DiLoCo at the best H, where local SGD gains.

A way of exchange that cannot win any more gets no further trials.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from equipoise.planning.exchange_choice.critical_interval import excess_steps
from equipoise.planning.exchange_choice.exchange_bounds import INTERVALS, MIN_GAIN, ExchangeBound, next_interval
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchange_choice.trial_state import (
    ExchangeTrial,
    StepRate,
    TrialState,
    forget_workers,
    list_known_trials,
    list_step_rates,
    select_own_runs,
)
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness
from equipoise.planning.search import OCTAVE_FACTOR, round_to_half_octave

MAX_EXCHANGE_TRIALS = 12  # of all ways of exchange, with the exact runs that their pairs need
MAX_EXCHANGE_LRS = 3  # at one setting
PAIRED_SEEDS = 3
INTERVAL_SEEDS = 2  # of further values of H
NUM_INTERVALS = 3  # values of H that Hc needs
PRUNE_EXCHANGE_FACTOR = 1.5  # a trial is pruned beyond this multiple of the examples at which it stops to gain
DILOCO_LR_SHARE = 0.25  # of local SGD's rate: the outer momentum lengthens steps; digits reached no target above it
# Gradients of old weights act as momentum: n workers that do not wait as one of 1 - 1/n (I. Mitliagkas, C. Zhang,
# S. Hadjis, C. Re: Asynchrony begets Momentum, 2016), so that one of 0.9 on top may be too much. None or all of it are
# tried, as it is the one option more that trials must pay for.
WITHOUT_MOMENTUM = 0.0
MIN_EXCESS_RATIO = 0.02  # of examples beyond those of exact sums, for a first guess of Hc


StageFunction = Callable[[TrialState, ExchangeBound], list[ExchangeTrial]]
"""trials of one stage for a survivor, the most valuable first"""


def suggest_exchange_trial(
    costs: ExchangeCosts,
    survivors: Sequence[ExchangeBound],
    runs: pd.DataFrame,
    *,
    num_trials: int,
    unavailable: Iterable[ExchangeTrial] = (),
    momentum: float = 0.0,
) -> ExchangeTrial | None:
    """Return the next trial, or None once no further one can change the answer.

    `runs` has all runs so far, `num_trials` of them were suggested here; those that run or were lost are `unavailable`.
    `momentum` is that of exact sums, or 0 for optimizers without one.
    """
    if num_trials >= MAX_EXCHANGE_TRIALS:
        return None
    known = list_known_trials(runs, unavailable)
    ranked = rank_exchange_trials(TrialState(costs=costs, runs=runs, momentum=momentum), survivors)
    return next((trial for trial in ranked if forget_workers(trial) not in known), None)


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
    """Return the largest speed-up of a way with the least examples that its runs allow, at the best H or S."""
    excesses = list_excesses(bound)
    if not excesses:
        return bound.max_speedup / lowest_ratio
    slope = (lowest_ratio - 1) / max(excesses.get(bound.exchange, 0.0), 1.0)
    return float(
        np.max(
            [
                bound.max_speedup / time_share(state, bound, name) / (1 + slope * excess)
                for name, excess in excesses.items()
            ]
        )
    )


def list_excesses(bound: ExchangeBound) -> dict[str, float]:
    """Return the ways that differ from a survivor in H or S alone, with what their examples ratio rises with."""
    if bound.is_sync:
        intervals = {*INTERVALS, parse_exchange(bound.exchange).interval}
        return {replace_number(bound.exchange, interval): interval - 1.0 for interval in intervals}
    if bound.is_asynchronous:
        bounds = {*range(1, bound.workers), parse_exchange(bound.exchange).staleness}
        return {replace_number(bound.exchange, S): mean_staleness(bound.workers, S) for S in bounds}
    return {}


def lowest_speedup(state: TrialState, bound: ExchangeBound) -> float:
    """Return the lower end of the speed-up of a way of exchange; 0 without a pair of runs."""
    ratio = state.find_ratio(bound)
    return 0.0 if ratio is None or ratio.is_lower_bound else bound.max_speedup / ratio.interval.high


def is_still_searched(state: TrialState, bound: ExchangeBound) -> bool:
    """Return whether further learning rates are to be tried before a way of exchange is judged."""
    tried = list_step_rates(select_own_runs(state.runs, bound.exchange, bound))
    return any(StepRate(trial.lr, trial.momentum) not in tried for trial in suggest_lrs(state, bound))


def suggest_lrs(state: TrialState, bound: ExchangeBound) -> list[ExchangeTrial]:
    """Suggest the best learning rate of exact sums and half of it, then an octave beyond the better one.

    Asynchronous updates are tried without momentum too, at first with the rate at which a gradient moves the weights
    half as far in the end as with it.
    """
    exact_lr = state.find_best_lr(bound, "") or bound.lr
    if exact_lr is None:
        return []
    firsts = [StepRate(exact_lr)]
    if bound.is_asynchronous and state.momentum:
        lr = round_to_half_octave(exact_lr / (1 - state.momentum) / OCTAVE_FACTOR)
        firsts.insert(0, StepRate(lr, WITHOUT_MOMENTUM))
    halves = [first._replace(lr=round_to_half_octave(first.lr / OCTAVE_FACTOR)) for first in firsts]
    rates = [*firsts, *halves]
    tried = list_step_rates(select_own_runs(state.runs, bound.exchange, bound))
    best = state.find_best_rate(bound, bound.exchange)
    if tried >= set(rates) and best:
        lrs = [rate.lr for rate in tried if rate.momentum == best.momentum]
        further = best.lr * OCTAVE_FACTOR if best.lr == max(lrs) else best.lr / OCTAVE_FACTOR
        if len(lrs) < MAX_EXCHANGE_LRS:
            rates.append(best._replace(lr=round_to_half_octave(further)))
    return [
        ExchangeTrial(bound.exchange, bound.workers, bound.global_batch, rate.lr, 0, rate.momentum) for rate in rates
    ]


def suggest_seed_pairs(
    state: TrialState, bound: ExchangeBound, name: str | None = None, num_seeds: int = PAIRED_SEEDS
) -> list[ExchangeTrial]:
    """Suggest seeds at the best learning rate, each with the exact run that it is compared with."""
    name = name or bound.exchange
    rate = state.find_best_rate(bound, name) or guess_rate(state, bound, name)
    exact_lr = state.find_best_lr(bound, "")
    ratio = state.find_ratio(bound, name)
    if rate is None or exact_lr is None or (ratio and ratio.is_lower_bound):
        return []
    return [
        ExchangeTrial(exchange, bound.workers, bound.global_batch, lr, seed, momentum)
        for seed in range(num_seeds)
        for exchange, (lr, momentum) in (("", StepRate(exact_lr)), (name, rate))
    ]


def guess_rate(state: TrialState, bound: ExchangeBound, name: str) -> StepRate | None:
    """Return a first learning rate from the best one of the survivor: the same, or a lower one for DiLoCo."""
    rate = state.find_best_rate(bound, bound.exchange)
    is_lower = parse_exchange(name).sync == "diloco" != parse_exchange(bound.exchange).sync
    return rate._replace(lr=round_to_half_octave(DILOCO_LR_SHARE * rate.lr)) if rate and is_lower else rate


def suggest_intervals(state: TrialState, bound: ExchangeBound) -> list[ExchangeTrial]:
    """Suggest two further values of H about the best one by what is known of Hc, and a second seed of each; or of S."""
    if bound.is_asynchronous:
        return suggest_stalenesses(state, bound)
    if not bound.is_sync:
        return []
    names = list_interval_names(state, bound)
    while len(names) < NUM_INTERVALS:
        tried = [parse_exchange(name).interval for name in names]
        interval = next_interval(bound, state.costs, guess_critical_steps(state, bound), tried)
        names.append(replace_number(bound.exchange, interval))
        if names[-1] not in set(state.runs.exchange):
            break  # its runs decide on the next one
    return [
        trial
        for num_seeds in range(1, INTERVAL_SEEDS + 1)
        for name in names[1:]
        for trial in suggest_seed_pairs(state, bound, name, num_seeds)
    ]


def suggest_stalenesses(state: TrialState, bound: ExchangeBound) -> list[ExchangeTrial]:
    """Suggest the values of S with which tau_c can be fitted, which takes four workers, and a second seed of each."""
    bounds = {1, bound.workers // 2, bound.workers - 1}
    own = min(parse_exchange(bound.exchange).staleness, bound.workers - 1)
    if len(bounds) < NUM_INTERVALS or own < 1:
        return []
    return [
        trial
        for num_seeds in range(1, INTERVAL_SEEDS + 1)
        for staleness in sorted(bounds - {own})
        for trial in suggest_seed_pairs(state, bound, replace_number(bound.exchange, staleness), num_seeds)
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


def replace_number(name: str, number: int) -> str:
    """Return the name of a way of exchange with another H or S."""
    head, separator, rest = name.partition("/")
    return f"{head.partition(':')[0]}:{number}{separator}{rest}"


def limit_trial_examples(bound: ExchangeBound, exact_examples: float) -> float:
    """Return the examples beyond which a trial is pruned: far more than those at which it stops to gain."""
    return PRUNE_EXCHANGE_FACTOR * exact_examples * bound.max_speedup / MIN_GAIN
