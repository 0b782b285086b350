"""What replicas add up: integers, so that the sum is the same to the last bit in whatever order they are added."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FixedPointSums = NDArray[np.int64]

FIXED_POINT_SCALE = 1 << 24
"""what a figure of 1.0 is counted as"""
INTEGER_PARTS = ("all", "classes")
"""parts that are whole numbers by themselves"""


@dataclass(frozen=True)
class SumsLayout:
    """Where in a row of integers each sum stands. Rows of one layout are merged by adding them."""

    class_count: int
    statistic_count: int
    fourier_count: int

    @property
    def slices(self) -> dict[str, slice]:
        """By name: pictures answered, looked at or not; those looked at, by what they were called; figures as charts
        take them; the same in their own units; the logarithms of bets that they are low or high; random features."""
        sizes = {
            "all": 1,
            "classes": self.class_count,
            "scores": self.statistic_count,
            "shifts": self.statistic_count,
            "low": self.statistic_count,
            "high": self.statistic_count,
            "waves": self.fourier_count,
        }
        ends = np.cumsum([0, *sizes.values()]).tolist()
        return {name: slice(first, last) for name, first, last in zip(sizes, ends[:-1], ends[1:], strict=True)}

    @property
    def row_length(self) -> int:
        """Integers in a row."""
        return 1 + self.class_count + 4 * self.statistic_count + self.fourier_count

    def pack(self, **parts: NDArray[Any]) -> FixedPointSums:
        """A row from its parts; counts are integers already."""
        row = np.zeros(self.row_length, np.int64)
        for name, where in self.slices.items():
            row[where] = parts[name] if name in INTEGER_PARTS else quantized_sum(parts[name])
        return row

    def pack_unobserved(self, image_count: int) -> FixedPointSums:
        """Pictures that were answered and not looked at."""
        row = self.empty_row()
        row[self.slices["all"]] = image_count
        return row

    def empty_row(self) -> FixedPointSums:
        """No picture."""
        return np.zeros(self.row_length, np.int64)

    def read_part(self, rows: FixedPointSums, name: str) -> NDArray[np.float64]:
        """One part of one row or of several."""
        part = rows[..., self.slices[name]]
        return np.asarray(part if name in INTEGER_PARTS else part / FIXED_POINT_SCALE, np.float64)


def quantized_sum(values: NDArray[Any]) -> FixedPointSums:
    """The sum over pictures, each rounded by itself: the same however pictures are grouped."""
    return np.asarray(np.rint(np.asarray(values, np.float64) * FIXED_POINT_SCALE).astype(np.int64).sum(0))
