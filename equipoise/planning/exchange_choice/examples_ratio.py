"""Examples ratio of a way of exchange: examples to the target over those of exact sums at the same global batch.

Runs are compared in pairs of equal seed, each side at its own best learning rate: comparing at one rate would decide
for the side that it suits. Ratios are averaged in logs.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from equipoise.planning.examples_to_target import MIN_SUCCESS_RATE, select_best_lr
from equipoise.planning.exchanges.exact_rows import read_momentum
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.setting_runs import (
    SettingRuns,
    censored_mean_log,
    group_by_setting,
    pool_seed_noise,
    shrink_seed_noise,
)
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES
from equipoise.type_aliases import FloatArray

POOLED_SCATTER_PAIRS = 3  # weight, in pairs, of the noise between seeds of all settings beside the scatter of the pairs
OWN_MOMENTUM = -1.0  # stands for the momentum of exact sums, which tables leave out
MAX_LOG_RATIO = 20.0  # of interval ends: with one pair Student's t reaches far


class RatioKey(NamedTuple):
    """Setting of a way of exchange whose examples are compared with those of exact sums."""

    exchange: str
    workers: int
    global_batch: int


@dataclass(frozen=True, kw_only=True)
class ExamplesRatio:
    """Examples that a way of exchange needs over those of exact sums, from pairs of runs."""

    key: RatioKey
    """way of exchange, workers and global batch"""
    lr: float | None
    """best learning rate of the way of exchange"""
    momentum: float | None = None
    """best momentum of the way of exchange; None for that of exact sums"""
    exact_lr: float | None
    """best learning rate of exact sums"""
    log_mean: float
    """mean log of the ratio; of a lower bound of it if most runs did not reach the target"""
    log_error: float
    """standard error of `log_mean`"""
    degrees_of_freedom: float
    """degrees of freedom of `log_error`"""
    pairs: int
    """pairs of runs"""
    reached: int
    """pairs in which the way of exchange reached the target"""
    at_first_average: int = 0
    """those of `reached` that did so at their first average: an earlier one might have been enough"""

    @property
    def value(self) -> float:
        """Ratio of the examples, as a geometric mean over pairs."""
        return float(np.exp(self.log_mean))

    @property
    def is_lower_bound(self) -> bool:
        """Whether most runs were cut off before the target, so that the ratio is larger than this."""
        return self.reached < MIN_SUCCESS_RATE * self.pairs or not self.reached

    @property
    def is_upper_bound(self) -> bool:
        """Whether most runs were at the target at their first average, so that the interval decided, not the drift."""
        return 2 * self.at_first_average > self.reached

    @property
    def interval(self) -> IntervalEstimate:
        """Ratio with its interval of 80 %."""
        reach = self.log_error * float(stdtrit(self.degrees_of_freedom, INTERVAL_QUANTILES[1]))
        low, high = (np.clip(self.log_mean + side * reach, -MAX_LOG_RATIO, MAX_LOG_RATIO) for side in (-1, 1))
        return IntervalEstimate(value=self.value, low=float(np.exp(low)), high=float(np.exp(high)))

    def sample_ratio(self, num_draws: int) -> FloatArray:
        """Return draws of the ratio."""
        rng = np.random.default_rng(self.key.global_batch)
        logs = self.log_mean + self.log_error * rng.standard_t(self.degrees_of_freedom, num_draws)
        return np.asarray(np.exp(np.clip(logs, -MAX_LOG_RATIO, MAX_LOG_RATIO)))


def fit_examples_ratios(runs: pd.DataFrame) -> list[ExamplesRatio]:
    """Return the ratio of each way of exchange, number of workers and global batch that has pairs of runs.

    `runs` has rows of exchange, workers, global_batch, lr, seed, examples and reached.
    """
    keys = [
        RatioKey(str(name), int(workers), int(batch))
        for name, workers, batch in sorted(set(zip(runs.exchange, runs.workers, runs.global_batch, strict=True)))
        if not parse_exchange(str(name)).learns_exactly
    ]
    noise = pool_noise_by_exchange(runs)
    ratios = [fit_examples_ratio(runs, key, noise) for key in keys]
    return [ratio for ratio in ratios if ratio is not None]


def fit_examples_ratio(
    runs: pd.DataFrame, key: RatioKey, pooled_noise: tuple[float, int] | None = None
) -> ExamplesRatio | None:
    """Return the ratio of one setting; None if there is no pair of runs of equal seed in which exact sums get there.

    `pooled_noise` is that of `pool_noise_by_exchange`, if it is known already.
    """
    at_batch = runs[runs.global_batch == key.global_batch]
    exact = at_batch[[parse_exchange(name).learns_exactly for name in at_batch.exchange]]
    own = at_batch[(at_batch.exchange == key.exchange) & (at_batch.workers == key.workers)]
    if own.empty or exact.empty:
        return None
    noise, freedom = pooled_noise or pool_noise_by_exchange(runs)
    best = select_best_momentum(own, noise).drop_duplicates("seed")
    best_exact = select_best_lr(exact, noise).drop_duplicates("seed")
    pairs = best.merge(best_exact[best_exact.reached == 1], on="seed", suffixes=("", "_exact"))
    if pairs.empty:
        return None
    ratios = pd.DataFrame({"examples": pairs.examples / pairs.examples_exact, "reached": pairs.reached})
    reached = int((ratios.reached == 1).sum())
    spread, pair_freedom = pool_pair_scatter(SettingRuns.from_table(ratios), shrink_seed_noise(noise, freedom))
    first_average = parse_exchange(key.exchange).interval * key.global_batch
    is_bound = not reached or reached < MIN_SUCCESS_RATE * len(ratios)
    return ExamplesRatio(
        key=key,
        lr=read_rate(best),
        momentum=read_momentum(best),
        exact_lr=read_rate(best_exact),
        log_mean=float(np.log(ratios.examples).mean()) if is_bound else censored_mean_log(ratios, spread),
        log_error=spread / float(np.sqrt(max(reached, 1))),
        degrees_of_freedom=pair_freedom,
        pairs=len(ratios),
        reached=reached,
        at_first_average=int((pairs.examples[pairs.reached == 1] <= first_average).sum()),
    )


def select_best_momentum(runs: pd.DataFrame, seed_noise: float) -> pd.DataFrame:
    """Return the runs of one setting at the pair of momentum and learning rate that needs the fewest examples."""
    if "momentum" not in runs or runs.momentum.isna().all():
        return select_best_lr(runs, seed_noise)
    pairs = runs.groupby([runs.momentum.astype(float).fillna(OWN_MOMENTUM), runs.lr.fillna(0.0)]).ngroup()
    best = select_best_lr(runs.assign(lr=pairs + 1.0), seed_noise)  # among pairs as among rates
    return best.assign(lr=runs.lr[best.index])


def pool_noise_by_exchange(runs: pd.DataFrame) -> tuple[float, int]:
    """Return the standard deviation between seeds, in log examples, pooled over all settings; and its freedom."""
    settings = [
        setting for _, part in runs.groupby(["exchange", "workers"]) for setting in group_by_setting(part).values()
    ]
    freedom = sum(max(int(setting.reached.sum()) - 1, 0) for setting in settings)
    return pool_seed_noise(settings), freedom


def pool_pair_scatter(ratios: SettingRuns, seed_noise: float) -> tuple[float, float]:
    """Return the standard deviation of the log ratio between pairs, and its degrees of freedom.

    The few pairs are shrunk to what independent runs of this noise between seeds scatter by.
    """
    freedom = max(int(ratios.reached.sum()) - 1, 0)
    variance = (POOLED_SCATTER_PAIRS * 2 * seed_noise**2 + ratios.sum_of_squares) / (POOLED_SCATTER_PAIRS + freedom)
    return float(np.sqrt(variance)), POOLED_SCATTER_PAIRS + freedom


def read_rate(runs: pd.DataFrame) -> float | None:
    """Return the learning rate of runs that share it; None where the table has none."""
    rate = float(runs.lr.iloc[0])
    return rate if np.isfinite(rate) else None
