"""Batch from which on several workers that share it take less time for a step than one.

The ratio of both times is interpolated between two batches on logarithmic axes; where it crosses 1 several times, the
last crossing counts.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from equipoise.planning.device_comparison.comparison_report import CrossingBatch
from equipoise.planning.interval import IntervalEstimate
from equipoise.type_aliases import FloatArray

CROSSING_DRAWS = 200
CROSSING_QUANTILES = (0.1, 0.9)  # of the draws: an interval of 80 %


def find_crossing(batches: Sequence[int], one: FloatArray, several: FloatArray) -> CrossingBatch:
    """Return the batch from which on several workers are faster, from seconds by turn (rows) and batch (columns).

    Its interval comes from turns that are drawn again.
    """
    medians = np.median(one, axis=0), np.median(several, axis=0)
    is_slower = medians[1] >= medians[0]
    if is_slower[-1]:
        return CrossingBatch(outcome="never", beyond=extrapolate_crossing(batches, *medians))
    if not is_slower.any():
        return CrossingBatch(outcome="always")
    value = interpolate_crossing(batches, *medians)
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(CROSSING_DRAWS):
        own, shared = (table[rng.integers(0, len(table), len(table))] for table in (one, several))
        draws.append(interpolate_crossing(batches, np.median(own, axis=0), np.median(shared, axis=0)))
    low, high = (float(bound) for bound in np.quantile(draws, CROSSING_QUANTILES))
    return CrossingBatch(
        outcome="crosses", batch=IntervalEstimate(value=value, low=min(low, value), high=max(high, value))
    )


def interpolate_crossing(batches: Sequence[int], one: FloatArray, several: FloatArray) -> float:
    """Return the batch at which the ratio of both times last falls below 1; an end of the range where it does not."""
    log_ratios = np.log(several / one)
    slower = np.flatnonzero(log_ratios >= 0)
    if not len(slower):
        return float(batches[0])
    last = int(slower[-1])
    if last == len(batches) - 1:
        return float(batches[-1])
    share = log_ratios[last] / (log_ratios[last] - log_ratios[last + 1])
    low, high = np.log(batches[last]), np.log(batches[last + 1])
    return float(np.exp(low + share * (high - low)))


def extrapolate_crossing(batches: Sequence[int], one: FloatArray, several: FloatArray) -> float | None:
    """Return the batch at which lines through both times at the two largest batches cross, if they do beyond them."""
    if len(batches) < 2:
        return None
    ((first, last),) = pairwise(batches[-2:])
    difference = several - one
    fall = (difference[-2] - difference[-1]) / (last - first)
    return float(last + difference[-1] / fall) if fall > 0 else None
