"""Examples ratios of all ways of exchange that were tried, and where they may be applied."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.planning.exchange_choice.critical_interval import CriticalInterval, fit_critical_interval
from equipoise.planning.exchange_choice.critical_staleness import (
    CriticalStaleness,
    find_staleness,
    fit_critical_staleness,
)
from equipoise.planning.exchange_choice.examples_ratio import ExamplesRatio, fit_examples_ratios
from equipoise.planning.exchanges.exchange_name import ExchangeMethod, parse_exchange
from equipoise.planning.parameter_servers.asynchronous_rate import mean_staleness
from equipoise.planning.plan import COMBINED_DRAWS
from equipoise.type_aliases import FloatArray

MAX_INTERVAL_POWER = 20  # of 2, for values of H that are predicted
BATCH_RANGE_FACTOR = 2.0  # a ratio is applied to global batches up to this factor from the one of its runs


class RatioEstimate(NamedTuple):
    """Examples ratio at one setting."""

    value: float
    draws: FloatArray
    lr: float | None
    is_measured: bool
    """true if runs had this way of exchange, these workers and this global batch"""
    momentum: float | None = None
    """best momentum; None for that of exact sums"""


class SyncFamily(NamedTuple):
    """Ways of exchange that differ in H or S alone, at one global batch and number of workers of their runs."""

    sync: str
    compression: str
    workers: int
    global_batch: int


@dataclass(frozen=True, kw_only=True, eq=False)
class RatioTable:
    """Measured ratios, and critical intervals where runs at three values of H tell them."""

    ratios: tuple[ExamplesRatio, ...]
    """ratio of each way of exchange, number of workers and global batch that was tried"""
    critical_intervals: dict[SyncFamily, CriticalInterval] = field(default_factory=dict)
    """critical intervals, by what their ways of exchange share"""
    critical_stalenesses: dict[SyncFamily, CriticalStaleness] = field(default_factory=dict)
    """critical stalenesses, by what their ways of exchange share"""
    gaps: tuple[str, ...] = ()
    """what is missing for further critical intervals and stalenesses, in sentences"""

    @property
    def names(self) -> list[str]:
        """Ways of exchange whose ratio is known at some setting: those tried, and further values of H and S."""
        names = [ratio.key.exchange for ratio in self.ratios]
        for family, critical in self.critical_intervals.items():
            suffix = f"/{family.compression}" if family.compression != "none" else ""
            powers = (2**power for power in range(1, MAX_INTERVAL_POWER))
            in_range = [interval for interval in powers if critical.missing_measurements(interval) is None]
            names += [f"{family.sync}:{interval}{suffix}" for interval in in_range]
        for family, staleness in self.critical_stalenesses.items():
            _, *servers = staleness.ratios[0].key.exchange.split("/")
            names += ["/".join([f"async:{bound}", *servers]) for bound in range(1, family.workers)]
        return list(dict.fromkeys(names))

    def find_ratio(self, name: str, workers: int, global_batch: int) -> RatioEstimate | None:
        """Return the examples ratio at a setting; None where no runs tell it."""
        near = [ratio for ratio in self.ratios if ratio.key.exchange == name and is_near(ratio, global_batch)]
        near = [ratio for ratio in near if not ratio.is_lower_bound]
        method = parse_exchange(name)
        if method.sync == "async":
            return self._find_asynchronous_ratio(method, near, workers, global_batch)
        if method.interval_family is None:
            best = min(near, key=lambda ratio: batch_distance(ratio, global_batch), default=None)
            return None if best is None else estimate_from_ratio(best, workers, global_batch)
        own = next((ratio for ratio in near if ratio.key.workers == workers), None)
        for family, critical in self.critical_intervals.items():
            in_family = (family.sync, family.compression) == (method.sync, method.compression)
            near_batch = abs(np.log(family.global_batch / global_batch)) <= np.log(BATCH_RANGE_FACTOR)
            if in_family and near_batch and critical.missing_measurements(method.interval) is None:
                return estimate_from_line(critical, method.interval, workers, global_batch)
        return None if own is None else estimate_from_ratio(own, workers, global_batch)

    def _find_asynchronous_ratio(
        self, method: ExchangeMethod, near: list[ExamplesRatio], workers: int, global_batch: int
    ) -> RatioEstimate | None:
        """Return the ratio of `async:S` on so many workers, whose runs had the same number of them.

        Servers share the updates, so that their number does not matter. With a bound from the number of workers on,
        equal workers are never held back, and unequal ones have the same mean.
        """
        bound = min(method.staleness, workers - 1)
        for family, critical in self.critical_stalenesses.items():
            near_batch = abs(np.log(family.global_batch / global_batch)) <= np.log(BATCH_RANGE_FACTOR)
            if family.workers == workers and near_batch and critical.missing_measurements(bound, workers) is None:
                return estimate_from_staleness(critical, bound, workers, global_batch)
        own = next((ratio for ratio in near if ratio.key.workers == workers), None)
        return None if own is None else estimate_from_ratio(own, workers, global_batch)

    def find_failure(self, name: str) -> ExamplesRatio | None:
        """Return the ratio of a way of exchange whose runs mostly missed the target; None if one setting did not."""
        own = [ratio for ratio in self.ratios if ratio.key.exchange == name]
        return own[0] if own and all(ratio.is_lower_bound for ratio in own) else None


def fit_ratio_table(runs: pd.DataFrame) -> RatioTable:
    """Fit the ratios of all ways of exchange in a table, and the critical intervals that they tell.

    `runs` has rows of exchange (empty for exact sums), workers, global_batch, lr, seed, examples and reached.
    """
    ratios = tuple(fit_examples_ratios(runs))
    families: dict[SyncFamily, list[ExamplesRatio]] = {}
    for ratio in ratios:
        method = parse_exchange(ratio.key.exchange)
        if method.number_family is not None:
            family = SyncFamily(str(method.sync), method.compression, ratio.key.workers, ratio.key.global_batch)
            families.setdefault(family, []).append(ratio)
    fits = {family: fit_family(family, part) for family, part in families.items()}
    return RatioTable(
        ratios=ratios,
        critical_intervals={family: fit for family, fit in fits.items() if isinstance(fit, CriticalInterval)},
        critical_stalenesses={family: fit for family, fit in fits.items() if isinstance(fit, CriticalStaleness)},
        gaps=tuple(
            f"critical {'staleness' if family.sync == 'async' else 'interval'} of {family.sync}: {fit}"
            for family, fit in fits.items()
            if isinstance(fit, str)
        ),
    )


def fit_family(family: SyncFamily, ratios: Sequence[ExamplesRatio]) -> CriticalInterval | CriticalStaleness | str:
    """Fit the line of the ratios of a family, or return what must be measured for it."""
    return fit_critical_staleness(ratios) if family.sync == "async" else fit_critical_interval(ratios)


def is_near(ratio: ExamplesRatio, global_batch: int) -> bool:
    """Return whether a ratio may be applied to a global batch."""
    return batch_distance(ratio, global_batch) <= float(np.log(BATCH_RANGE_FACTOR))


def batch_distance(ratio: ExamplesRatio, global_batch: int) -> float:
    """Return the distance between the global batch of a ratio and another one, in logs."""
    return abs(float(np.log(ratio.key.global_batch / global_batch)))


def estimate_from_ratio(ratio: ExamplesRatio, workers: int, global_batch: int) -> RatioEstimate:
    """Return the estimate of a ratio that is applied as it was measured."""
    is_measured = (ratio.key.workers, ratio.key.global_batch) == (workers, global_batch)
    return RatioEstimate(ratio.value, ratio.sample_ratio(COMBINED_DRAWS), ratio.lr, is_measured, ratio.momentum)


def estimate_from_line(critical: CriticalInterval, interval: int, workers: int, global_batch: int) -> RatioEstimate:
    """Return the estimate by the critical interval, which rests on the runs at this H too if there are any."""
    rng = np.random.default_rng(global_batch + interval)
    draws = rng.choice(critical.sample_ratio(interval, workers), COMBINED_DRAWS)
    value = critical.predict_ratio(interval, workers).value
    nearest = min(critical.ratios, key=lambda ratio: abs(parse_exchange(ratio.key.exchange).interval - interval))
    setting = (parse_exchange(nearest.key.exchange).interval, nearest.key.workers, nearest.key.global_batch)
    return RatioEstimate(value, draws, nearest.lr, setting == (interval, workers, global_batch))


def estimate_from_staleness(critical: CriticalStaleness, bound: int, workers: int, global_batch: int) -> RatioEstimate:
    """Return the estimate by the critical staleness, which rests on the runs at this S too if there are any."""
    rng = np.random.default_rng([global_batch, bound])
    draws = rng.choice(critical.sample_ratio(bound, workers), COMBINED_DRAWS)
    tau = mean_staleness(workers, bound)
    nearest = min(critical.ratios, key=lambda ratio: abs(find_staleness(ratio) - tau))
    is_measured = (find_staleness(nearest), nearest.key.global_batch) == (tau, global_batch)
    return RatioEstimate(critical.predict_ratio(bound, workers).value, draws, nearest.lr, is_measured, nearest.momentum)
