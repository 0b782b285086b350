"""Best way of exchange over rates and delays of the network, and where the answer changes from the measured links."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from equipoise.planning.exchange_choice.exact_fits import ExactFits
from equipoise.planning.exchange_choice.exchange_bounds import MIN_GAIN
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts, SlowestLinks
from equipoise.planning.exchange_choice.exchange_estimates import find_ratio_values, list_known_names
from equipoise.planning.exchange_choice.exchange_verdict import ExchangeMap, SwitchesAt
from equipoise.planning.exchange_choice.ratio_table import RatioTable
from equipoise.type_aliases import FloatArray

MAP_RATES = tuple(float(f"{rate:.3g}") for rate in np.geomspace(1e7, 1e11, 25))  # bits per second
MAP_DELAYS = tuple(float(f"{delay:.3g}") for delay in np.geomspace(1e-5, 1e-1, 17))  # seconds a message
SpeedupFunction = Callable[[FloatArray], FloatArray]
"""speed-up of the best way of exchange at each of several rates or delays"""
REFINED_POINTS = 200  # between two neighbours, among which a switch is found


class NetworkAnswers(NamedTuple):
    """Best way of exchange on each of several networks."""

    best: FloatArray
    """position of the best way of exchange among the options, from 1; 0 for exact sums"""
    exact_seconds: FloatArray
    """seconds to the target of the best setting with exact sums"""
    speedup: FloatArray
    """how many times sooner the best way of exchange is; 1 for exact sums"""


class MapOption(NamedTuple):
    """Way of exchange with its examples ratio at each setting."""

    exchange: str
    factors: FloatArray


def list_map_options(fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable) -> list[MapOption]:
    """Return the ways of exchange whose examples and costs are known."""
    options = [MapOption(name, find_ratio_values(fits, ratios, name)) for name in list_known_names(costs, ratios)]
    return [option for option in options if not np.isnan(option.factors).all()]


def answer_networks(
    fits: ExactFits, costs: ExchangeCosts, options: list[MapOption], delays: FloatArray, rates: FloatArray
) -> NetworkAnswers:
    """Return the best way of exchange on each network; exact sums unless another one is at least 5 % sooner."""
    networks = SlowestLinks(delays.reshape(-1, 1), rates.reshape(-1, 1))
    per_step = fits.examples / fits.global_batches
    alone = min([option.seconds for option in fits.alone], default=np.inf)  # one worker needs no network
    exact = np.minimum((per_step * costs.step_seconds("", fits.settings, networks)).min(axis=1), alone)
    times = np.array(
        [
            np.nanmin(per_step * option.factors * costs.step_seconds(option.exchange, fits.settings, networks), axis=1)
            for option in options
        ]
    )
    fastest = times.argmin(axis=0)
    speedups = exact / times.min(axis=0)
    pays = speedups >= MIN_GAIN
    return NetworkAnswers(np.where(pays, fastest + 1, 0), exact, np.where(pays, speedups, 1.0))


def build_exchange_map(fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable) -> ExchangeMap | None:
    """Return the map of the best way of exchange; None if no other one, or no rate of the links, was measured."""
    own, options = costs.network, list_map_options(fits, costs, ratios)
    if own is None or not options:
        return None
    delays, rates = np.meshgrid(MAP_DELAYS, MAP_RATES, indexing="ij")
    answers = answer_networks(fits, costs, options, delays, rates)
    used = sorted({0, *answers.best.astype(int).tolist()})
    names = ["", *(option.exchange for option in options)]
    exact, speedup = (
        tuple(map(tuple, values.reshape(delays.shape).tolist())) for values in (answers.exact_seconds, answers.speedup)
    )
    return ExchangeMap(
        bits_per_second=MAP_RATES,
        delay_seconds=MAP_DELAYS,
        options=tuple(names[index] for index in used),
        best=tuple(tuple(used.index(int(index)) for index in row) for row in answers.best.reshape(delays.shape)),
        exact_seconds=exact,
        speedup=speedup,
        own_bits_per_second=float(own.bits_per_second),
        own_delay_seconds=float(own.delay_seconds),
    )


def find_switches(fits: ExactFits, costs: ExchangeCosts, ratios: RatioTable) -> SwitchesAt | None:
    """Return the nearest rate and delay at which exact sums start or stop to be the best; None as with the map."""
    own, options = costs.network, list_map_options(fits, costs, ratios)
    if own is None or not options:
        return None

    def speedups_at_rates(rates: FloatArray) -> FloatArray:
        delays = np.full(len(rates), own.delay_seconds)
        return answer_networks(fits, costs, options, delays, rates).speedup

    def speedups_at_delays(delays: FloatArray) -> FloatArray:
        rates = np.full(len(delays), own.bits_per_second)
        return answer_networks(fits, costs, options, delays, rates).speedup

    rate, delay = float(own.bits_per_second), float(own.delay_seconds)
    return SwitchesAt(
        bits_per_second=find_switch(speedups_at_rates, rate, worse=MAP_RATES[0], better=MAP_RATES[-1]),
        delay_seconds=find_switch(speedups_at_delays, delay, worse=MAP_DELAYS[-1], better=MAP_DELAYS[0]),
    )


def find_switch(
    speedups: Callable[[FloatArray], FloatArray], own: float, *, worse: float, better: float
) -> float | None:
    """Return the nearest value at which another way starts or stops to be the best.

    That is on a better network if one is at `own`, where its speed-up is above 1, else on a worse one. If none is
    there, the other side counts.
    """
    start = max(own, min(worse, better))
    sides = (better, worse) if speedups(np.array([start]))[0] > 1 else (worse, better)
    for side in sides:
        low, high = start, side
        for _ in range(2):
            values = np.geomspace(low, high, REFINED_POINTS)
            changes = np.flatnonzero(np.diff((speedups(values) > 1).astype(int)))
            if not len(changes):
                break
            low, high = float(values[changes[0]]), float(values[changes[0] + 1])
        else:
            return float(f"{np.sqrt(low * high):.6g}")
    return None
