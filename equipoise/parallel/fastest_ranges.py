"""Which algorithm sums fastest at which size, and where one overtakes another."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from equipoise.parallel.algorithm_choice import AlgorithmTiming, choose_algorithm, estimate_sum_seconds
from equipoise.registries.all_reduce_registry import AppliedAllReduce

SIMILAR_RATIO = 1.05  # seconds of an algorithm over the fastest one's, up to which both count as alike
STEPS_PER_OCTAVE = 16  # sizes at which algorithms are compared: a crossing is found within 4 %


class FastestRange(NamedTuple):
    """Sizes of a tensor that one algorithm sums fastest."""

    algorithm: AppliedAllReduce
    start_bytes: int
    """smallest size that was compared, or where this algorithm overtakes the one before"""
    stop_bytes: int
    """largest size that was compared, or where the next algorithm overtakes this one"""
    similar: tuple[AppliedAllReduce, ...]
    """algorithms that take at most 5 % longer, at every size of the range"""


def find_fastest_ranges(timings: Sequence[AlgorithmTiming]) -> list[FastestRange]:
    """Return the fastest algorithm of every size between the smallest and the largest that were timed."""
    sizes = list_compared_sizes(timings)
    fastest = [choose_algorithm(size, timings) for size in sizes]
    starts = [index for index, name in enumerate(fastest) if index == 0 or name != fastest[index - 1]]
    stops = [*starts[1:], len(sizes)]
    return [
        FastestRange(
            fastest[start],
            sizes[start],
            sizes[min(stop, len(sizes) - 1)],
            find_similar(fastest[start], sizes[start:stop], timings),
        )
        for start, stop in zip(starts, stops, strict=True)
    ]


def list_compared_sizes(timings: Sequence[AlgorithmTiming]) -> list[int]:
    """Return sizes from the smallest to the largest timed one, evenly spaced on a logarithmic scale, with both ends."""
    low, high = min(row.bytes for row in timings), max(row.bytes for row in timings)
    count = int(np.ceil(STEPS_PER_OCTAVE * np.log2(high / low))) + 1
    return sorted({round(size) for size in np.geomspace(low, high, count)})


def find_similar(
    name: AppliedAllReduce, sizes: Sequence[int], timings: Sequence[AlgorithmTiming]
) -> tuple[AppliedAllReduce, ...]:
    """Return the other algorithms that are about as fast as `name` at all of these sizes."""
    best = [estimate_sum_seconds(size, name, timings) for size in sizes]
    return tuple(
        other
        for other in dict.fromkeys(row.algorithm for row in timings)
        if other != name
        and all(
            estimate_sum_seconds(size, other, timings) <= SIMILAR_RATIO * seconds
            for size, seconds in zip(sizes, best, strict=True)
        )
    )
