"""Best way of exchange over rates and delays of the network, and where the answer changes from the measured links."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from equipoise.planning.exchange_choice.exact_fits import ExactFits
from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts, Network
from equipoise.planning.exchange_choice.exchange_estimates import find_ratio_values
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, SwitchesAt
from equipoise.planning.exchange_choice.ratio_table import RatioTable
from equipoise.type_aliases import FloatArray

MAP_RATES = tuple(float(f"{rate:.3g}") for rate in np.geomspace(1e7, 1e11, 25))  # bits per second
MAP_DELAYS = tuple(float(f"{delay:.3g}") for delay in np.geomspace(1e-5, 1e-1, 17))  # seconds a message
BISECTION_STEPS = 40


class NetworkAnswer(NamedTuple):
    """Best way of exchange on a network."""

    exchange: str
    """way of exchange; empty for exact sums"""
    exact_seconds: float
    """seconds to the target of the best setting with exact sums"""
    speedup: float
    """how many times sooner the way of exchange is"""


class MapOption(NamedTuple):
    """Way of exchange with its examples ratio at each setting."""

    exchange: str
    factors: FloatArray


def list_map_options(fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable) -> list[MapOption]:
    """Return the ways of exchange whose examples and costs are known."""
    names = [name for name in ratios.names if costs.missing_facts(name) is None]
    options = [MapOption(name, find_ratio_values(fits, ratios, name)) for name in names]
    return [option for option in options if not np.isnan(option.factors).all()]


def answer_network(
    fits: ExactFits, costs: ExchangeCosts, options: list[MapOption], network: Network | None
) -> NetworkAnswer:
    """Return the best way of exchange on a network; exact sums unless another one is at least 5 % sooner."""
    exact_seconds = best_exact_seconds(fits, costs, network)
    per_step = fits.examples / fits.global_batches
    times = {
        option.exchange: float(
            np.nanmin(per_step * option.factors * costs.step_seconds(option.exchange, fits.settings, network))
        )
        for option in options
    }
    name = min(times, key=lambda name: (times[name], name), default="")
    if not name or exact_seconds < MIN_GAIN * times[name]:
        return NetworkAnswer("", exact_seconds, 1.0)
    return NetworkAnswer(name, exact_seconds, exact_seconds / times[name])


def best_exact_seconds(fits: ExactFits, costs: ExchangeCosts, network: Network | None) -> float:
    """Return the seconds to the target of the best setting with exact sums on a network, one worker included."""
    steps = costs.step_seconds("", fits.settings, network)
    seconds = float((fits.examples / fits.global_batches * steps).min())
    return min([seconds, *(option.seconds for option in fits.alone)])


def build_exchange_map(fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable) -> ExchangeMap | None:
    """Return the map of the best way of exchange; None if no other one, or no rate of the links, was measured."""
    own, options = costs.network, list_map_options(fits, costs, ratios)
    if own is None or not options:
        return None
    answers = [
        [answer_network(fits, costs, options, Network(delay, rate)) for rate in MAP_RATES] for delay in MAP_DELAYS
    ]
    names = list(dict.fromkeys(["", *(answer.exchange for row in answers for answer in row)]))
    return ExchangeMap(
        bits_per_second=MAP_RATES,
        delay_seconds=MAP_DELAYS,
        options=tuple(names),
        best=tuple(tuple(names.index(answer.exchange) for answer in row) for row in answers),
        exact_seconds=tuple(tuple(answer.exact_seconds for answer in row) for row in answers),
        speedup=tuple(tuple(answer.speedup for answer in row) for row in answers),
        own_bits_per_second=own.bits_per_second,
        own_delay_seconds=own.delay_seconds,
    )


def find_switches(fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable) -> SwitchesAt | None:
    """Return the rate and the delay at which exact sums stop being the best; None as with the map."""
    own, options = costs.network, list_map_options(fits, costs, ratios)
    if own is None or not options:
        return None

    def pays_at_rate(rate: float) -> bool:
        return bool(answer_network(fits, costs, options, Network(own.delay_seconds, rate)).exchange)

    def pays_at_delay(delay: float) -> bool:
        return bool(answer_network(fits, costs, options, Network(delay, own.bits_per_second)).exchange)

    return SwitchesAt(
        bits_per_second=bisect_switch(pays_at_rate, MAP_RATES[0], MAP_RATES[-1]),
        delay_seconds=bisect_switch(pays_at_delay, MAP_DELAYS[0], MAP_DELAYS[-1]),
    )


def bisect_switch(pays: Callable[[float], bool], low: float, high: float) -> float | None:
    """Return where another way of exchange starts or stops to pay, by bisection in logs; None if it does not change."""
    pays_at_low = pays(low)
    if pays_at_low == pays(high):
        return None
    for _ in range(BISECTION_STEPS):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if pays(middle) == pays_at_low else (low, middle)
    return float(f"{np.sqrt(low * high):.6g}")
