"""Choose the algorithm of a sum from what sums of several sizes took."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from equipoise.registries.all_reduce_registry import AppliedAllReduce


class AlgorithmTiming(NamedTuple):
    """Seconds that the sum of a tensor over all workers took."""

    algorithm: AppliedAllReduce
    bytes: int
    seconds: float


def choose_algorithm(size_bytes: int, timings: Sequence[AlgorithmTiming]) -> AppliedAllReduce:
    """Return the algorithm that sums `size_bytes` fastest according to a table of timings; the first of two alike."""
    algorithms = dict.fromkeys(row.algorithm for row in timings)
    return min(algorithms, key=lambda name: estimate_sum_seconds(size_bytes, name, timings))


def estimate_sum_seconds(size_bytes: int, algorithm: AppliedAllReduce, timings: Iterable[AlgorithmTiming]) -> float:
    """Estimate the seconds of a sum on the lines between the sizes that were timed.

    Below the smallest size it takes as long as that one; above the largest the last line goes on, but never falls.
    """
    sizes, seconds = zip(
        *sorted((row.bytes, row.seconds) for row in timings if row.algorithm == algorithm), strict=True
    )
    if size_bytes <= sizes[-1]:
        return float(np.interp(size_bytes, sizes, seconds))
    if len(sizes) == 1:
        return float(seconds[0] * size_bytes / sizes[0])
    slope = max(0.0, (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]))
    return float(seconds[-1] + slope * (size_bytes - sizes[-1]))
