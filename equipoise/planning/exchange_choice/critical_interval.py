"""Examples ratio of workers that exchange every H steps: it rises with H as the curve of examples does with the batch.

    rho(H, n) = 1 + (H - 1) (1 - 1/n) / Hc        Hc: critical interval, at which many workers need twice the examples

It is fitted to log ratios, since their noise is relative; weighted least squares of the ratios themselves do nearly as
well (8.3 instead of 8.0 % error of predicted ratios on simulated runs with 10 % noise, 13.6 % both with 15 %). The
intervals come from draws in which ratios that share their exact runs share half of the variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from equipoise.planning.exchange_choice.examples_ratio import ExamplesRatio
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES
from equipoise.type_aliases import FloatArray

CRITICAL_INTERVAL_DRAWS = 200
MIN_INTERVALS = 3  # values of H
MIN_INTERVAL_RATIO = 4  # largest H over the smallest
MAX_RATIO_SPREAD = 1.6  # between the ends of a predicted ratio: beyond it Hc tells nothing
EXTRAPOLATION_FACTOR = 2  # H may be predicted up to this factor outside of the measured ones
EXTRAPOLATION_LOG_SD = 0.06  # in log examples, per octave outside of them
SHARED_VARIANCE = 0.5  # of ratios over the same exact runs
MAX_CRITICAL_INTERVAL = 1e6
SLOPES = np.geomspace(1 / MAX_CRITICAL_INTERVAL, 10.0, 1000)  # 1/Hc among which the best is taken: 1.6 % apart

Line = TypeVar("Line", bound="RatioLine")


@dataclass(frozen=True, kw_only=True, eq=False)
class RatioLine:
    """Line of examples ratios that begins at 1, rho = 1 + x / critical value, with draws of it."""

    slope: float
    """1 / critical value"""
    slope_draws: FloatArray = field(repr=False)
    """1 / critical value in each draw"""
    ratios: tuple[ExamplesRatio, ...]
    """measured ratios"""
    lack_of_fit_sd: float
    """standard deviation of log ratios about the line beyond their own errors"""

    @property
    def value(self) -> float:
        """Critical value, at which twice the examples are needed."""
        return 1 / self.slope

    @property
    def interval(self) -> IntervalEstimate:
        """Critical value with its interval of 80 %."""
        low, high = np.quantile(1 / self.slope_draws, INTERVAL_QUANTILES)
        return IntervalEstimate(value=self.value, low=min(float(low), self.value), high=max(float(high), self.value))


class CriticalInterval(RatioLine):
    """Critical interval Hc of a way of exchange in steps."""

    @property
    def measured_intervals(self) -> list[int]:
        """Values of H that were measured."""
        return sorted({parse_exchange(ratio.key.exchange).interval for ratio in self.ratios})

    def missing_measurements(self, interval: int) -> str | None:
        """Return what must be measured before the ratio at this H can be predicted; None if it can."""
        low, high = self.measured_intervals[0], self.measured_intervals[-1]
        if interval > 1 and not low <= EXTRAPOLATION_FACTOR * interval <= EXTRAPOLATION_FACTOR**2 * high:
            return f"runs nearer to an exchange every {interval} steps than those of {low} to {high}"
        return None

    def predict_ratio(self, interval: int, workers: int) -> IntervalEstimate:
        """Return the examples ratio of so many workers at this H."""
        value = 1 + self.slope * excess_steps(interval, workers)
        low, high = np.quantile(self.sample_ratio(interval, workers), INTERVAL_QUANTILES)
        return IntervalEstimate(value=value, low=min(float(low), value), high=max(float(high), value))

    def sample_ratio(self, interval: int, workers: int) -> FloatArray:
        """Return the examples ratio in each draw."""
        steps = excess_steps(interval, workers)
        noise = np.random.default_rng(interval).standard_normal(CRITICAL_INTERVAL_DRAWS) if steps else 0.0
        measured = self.measured_intervals
        octaves = max(0.0, float(np.log2(interval / measured[-1])), float(np.log2(measured[0] / interval)))
        spread = np.hypot(self.lack_of_fit_sd, EXTRAPOLATION_LOG_SD * octaves)
        return np.asarray((1 + self.slope_draws * steps) * np.exp(spread * noise))


def excess_steps(interval: int, workers: int) -> float:
    """Return the steps of an interval by which several workers drift apart: (H - 1) (1 - 1/n)."""
    return (interval - 1) * (1 - 1 / workers)


def fit_critical_interval(ratios: Sequence[ExamplesRatio]) -> CriticalInterval | str:
    """Fit Hc to ratios at several values of H, or return what must be measured for it."""
    compared = [ratio for ratio in ratios if not ratio.is_lower_bound and ratio.key.workers > 1]
    usable = tuple(ratio for ratio in compared if not ratio.is_upper_bound)
    intervals = {interval for ratio in usable if (interval := parse_exchange(ratio.key.exchange).interval) > 1}
    if len(intervals) < MIN_INTERVALS:
        early = ", after more than one of them" if len(usable) < len(compared) else ""
        missing = f"runs that reach the target at {MIN_INTERVALS} intervals between exchanges"
        return f"{missing}{early}; there are {len(intervals)}"
    if max(intervals) < MIN_INTERVAL_RATIO * min(intervals):
        return f"runs at intervals further apart than {min(intervals)} to {max(intervals)} steps"
    steps = np.array([excess_steps(parse_exchange(ratio.key.exchange).interval, ratio.key.workers) for ratio in usable])
    critical = fit_ratio_line(CriticalInterval, steps, usable)
    widest = critical.predict_ratio(max(intervals), max(ratio.key.workers for ratio in usable))
    if widest.high > MAX_RATIO_SPREAD * widest.low:
        return f"more seeds: {max(intervals)} steps between exchanges need {widest.low:.2g} to {widest.high:.2g} times"
    return critical


def fit_ratio_line(line: type[Line], values: FloatArray, ratios: tuple[ExamplesRatio, ...]) -> Line:
    """Fit a line to ratios at these values of x."""
    logs, errors = (np.array([getattr(ratio, name) for ratio in ratios]) for name in ("log_mean", "log_error"))
    slope = float(fit_slopes(values, logs[None], errors)[0])
    squares = float(((logs - np.log1p(slope * values)) ** 2 - errors**2).sum())
    return line(
        slope=slope,
        slope_draws=fit_slopes(values, draw_log_ratios(ratios), errors),
        ratios=ratios,
        lack_of_fit_sd=float(np.sqrt(max(squares, 0.0) / (len(ratios) - 1))),
    )


def fit_slopes(steps: FloatArray, logs: FloatArray, errors: FloatArray) -> FloatArray:
    """Return the slope that fits each row of log ratios best, by least squares weighted by their errors."""
    predicted = np.log1p(SLOPES[:, None] * steps)
    squares = (((logs[:, None] - predicted) / errors) ** 2).sum(axis=2)
    return np.asarray(SLOPES[squares.argmin(axis=1)])


def draw_log_ratios(ratios: Sequence[ExamplesRatio]) -> FloatArray:
    """Return draws of the log ratios, one row per draw."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((CRITICAL_INTERVAL_DRAWS, 1))
    own = rng.standard_normal((CRITICAL_INTERVAL_DRAWS, len(ratios)))
    freedom = np.mean([ratio.degrees_of_freedom for ratio in ratios])
    scale = np.sqrt(freedom / rng.chisquare(freedom, (CRITICAL_INTERVAL_DRAWS, 1)))  # makes normals Student's t
    noise = (np.sqrt(SHARED_VARIANCE) * shared + np.sqrt(1 - SHARED_VARIANCE) * own) * scale
    means, errors = (np.array([getattr(ratio, name) for ratio in ratios]) for name in ("log_mean", "log_error"))
    return np.asarray(means + noise * errors)


def find_best_interval(critical_steps: float, exchange_seconds: float, compute_seconds: float) -> float:
    """Return the H with the shortest time to the target, sqrt(T2 (Hc' - 1) / T1), at least 1.

    `critical_steps` is Hc' = Hc / (1 - 1/n), `exchange_seconds` T2 of one exchange, `compute_seconds` T1 of one step.
    """
    return float(np.sqrt(max(1.0, exchange_seconds * (critical_steps - 1) / compute_seconds)))
