"""Seconds to the target with each way of exchange: those of exact sums, times the step's ratio, times the examples'."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from equipoise.planning.build_document import build_plan_entry
from equipoise.planning.document import PlanEntry
from equipoise.planning.exchange_choice.exact_fits import ExactFits
from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchange_choice.ratio_table import RatioEstimate, RatioTable
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.predict_exchanges import PREDICTION_LOG_SD
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.plan import COMBINED_DRAWS, PlanOption
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES
from equipoise.type_aliases import FloatArray

TIMED_LOG_SD = 0.03  # of the ratio of two step times that were both measured


@dataclass(frozen=True, kw_only=True, eq=False)
class ExchangeEstimate:
    """Way of exchange at the setting where it reaches the target first."""

    exchange: str
    """way of exchange"""
    option: PlanOption
    """its setting, with its own step time, examples, learning rate and draws of the seconds"""
    ratio: RatioEstimate
    """examples ratio at this setting"""
    speedup: IntervalEstimate
    """how many times sooner it is than the best setting with exact sums"""

    @property
    def seconds(self) -> IntervalEstimate:
        """Seconds to the target with their interval, as an average over seeds."""
        return estimate_interval(self.option.seconds, self.option.seconds_draws)


def estimate_exchanges(fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable) -> list[ExchangeEstimate]:
    """Return the estimate of each way of exchange whose examples and step times are known, the fastest first."""
    names = list_known_names(costs, ratios)
    estimates = [estimate for name in names for estimate in estimate_exchange(fits, costs, ratios, name)]
    return sorted(estimates, key=lambda estimate: (estimate.option.seconds, estimate.exchange))


def list_known_names(costs: ExchangeCosts, ratios: RatioTable) -> list[str]:
    """Return the ways of exchange whose step times and examples are known: of exact ones, those that were timed."""
    exact = [name for name in costs.step_ratios if parse_exchange(name).learns_exactly]
    return [name for name in dict.fromkeys([*ratios.names, *exact]) if costs.missing_facts(name) is None]


def build_exact_ratio(exact: PlanOption) -> RatioEstimate:
    """Return the examples ratio, at a setting, of a way of exchange whose steps are those of exact sums."""
    return RatioEstimate(1.0, np.ones(COMBINED_DRAWS), exact.lr, exact.measured)


def find_setting_ratio(ratios: RatioTable, name: str, exact: PlanOption) -> RatioEstimate | None:
    """Return the examples ratio at a setting of exact sums: 1 where the steps are theirs; None where no runs tell."""
    if parse_exchange(name).learns_exactly:
        return build_exact_ratio(exact)
    return ratios.find_ratio(name, exact.workers, exact.global_batch)


def estimate_exchange(
    fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable, name: str
) -> Iterator[ExchangeEstimate]:
    """Yield the estimate of a way of exchange at its fastest setting; nothing where no runs tell its examples."""
    factors = find_ratio_values(fits, ratios, name)
    if np.isnan(factors).all():
        return
    steps = costs.step_seconds(name, fits.settings)
    best = int(np.nanargmin(fits.examples * factors / fits.global_batches * steps))
    exact = fits.options[best]
    ratio = find_setting_ratio(ratios, name, exact)
    if ratio is None:
        return
    option = apply_exchange(exact, ratio, float(steps[best]), costs.is_timed(name), name)
    reference = fits.reference
    # draws of the same setting share their exact step times and examples, so that only ratios are left
    draws = reference.seconds_draws / option.seconds_draws
    speedup = estimate_interval(reference.seconds / option.seconds, draws)
    yield ExchangeEstimate(exchange=name, option=option, ratio=ratio, speedup=speedup)


def find_ratio_values(fits: ExactFits, ratios: RatioTable, name: str) -> FloatArray:
    """Return the examples ratio at each setting, at least 1; NaN where no runs tell it."""
    estimates = [find_setting_ratio(ratios, name, option) for option in fits.options]
    return np.array([np.nan if ratio is None else max(1.0, ratio.value) for ratio in estimates])


def apply_exchange(
    exact: PlanOption, ratio: RatioEstimate, step_seconds: float, is_timed: bool, name: str
) -> PlanOption:
    """Return the option of a setting with another way of exchange."""
    rng = np.random.default_rng([exact.global_batch, *name.encode()])
    spread = TIMED_LOG_SD if is_timed else PREDICTION_LOG_SD
    noise = np.exp(spread * rng.standard_normal(len(exact.seconds_draws)))
    # fewer examples than exact sums are not expected: such a ratio is luck, of which the best of several has most
    factor, draws = max(1.0, ratio.value), np.maximum(1.0, ratio.draws)
    compute = min(exact.component_seconds[0], step_seconds)
    return replace(
        exact,
        lr=ratio.lr,
        examples=exact.examples * factor,
        step_seconds=step_seconds,
        component_seconds=(compute, step_seconds - compute),
        seconds_draws=exact.seconds_draws * step_seconds / exact.step_seconds * draws * noise,
        measured=is_timed and ratio.is_measured,
    )


def is_clear_gain(speedup: IntervalEstimate) -> bool:
    """Return whether all of the interval of a speed-up over exact sums is enough for another way of exchange.

    The best of several estimates is usually too good, so that a value alone would often be luck.
    """
    return speedup.low >= MIN_GAIN


def estimate_interval(value: float, draws: FloatArray) -> IntervalEstimate:
    """Return a value with the interval of 80 % of its draws."""
    low, high = (float(end) for end in np.quantile(draws, INTERVAL_QUANTILES))
    return IntervalEstimate(value=value, low=min(low, value), high=max(high, value))


def build_exchange_entry(fits: ExactFits, estimate: ExchangeEstimate, why: str) -> PlanEntry:
    """Return the entry of plan.json that recommends a way of exchange."""
    entry = build_plan_entry(estimate.option, None, fits.curve)
    runs = entry.runs if parse_exchange(estimate.exchange).learns_exactly else 0
    entry = entry.with_exchange(estimate.exchange)
    return replace(entry, momentum=estimate.ratio.momentum, why=why, runs=runs)
