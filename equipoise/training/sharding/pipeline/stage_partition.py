"""Division of consecutive pieces of work among the stages of a pipeline."""

from collections.abc import Sequence
from itertools import accumulate, pairwise


def partition_pieces(seconds: Sequence[float], stages: int) -> list[range]:
    """Return which consecutive pieces each stage takes, at least one, so that the slowest stage is the fastest.

    Exact, by dynamic programming: the first `count` pieces on `stage` stages take the smallest, over all first pieces
    of the last stage, of the larger of its own time and that of the stages before. Of equal divisions it returns the
    one whose last stages take the fewest pieces.
    """
    if not 1 <= stages <= len(seconds):
        raise ValueError(f"cannot divide {len(seconds)} pieces among {stages} stages")
    ends = [0.0, *accumulate(seconds)]
    slowest = [list(ends)]  # by stages but one, and by the number of pieces
    firsts: list[list[int]] = [[0] * len(ends)]
    for stage in range(1, stages):
        row, first_row = [float("inf")] * len(ends), [0] * len(ends)
        for count in range(stage + 1, len(ends)):
            row[count], negative_first = min(
                (max(slowest[-1][first], ends[count] - ends[first]), -first) for first in range(stage, count)
            )
            first_row[count] = -negative_first
        slowest.append(row)
        firsts.append(first_row)
    bounds = [len(seconds)]
    for first_row in reversed(firsts):
        bounds.insert(0, first_row[bounds[0]])
    return [range(start, end) for start, end in pairwise(bounds)]
