"""What replicas add up: integers, so that the sum is the same to the last bit in whatever order they are added."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Sums = NDArray[np.int64]

ONE = 1 << 24
"""what a figure of 1.0 is counted as"""
COUNTS = ("all", "classes")
"""parts that are whole numbers by themselves"""


@dataclass(frozen=True)
class Layout:
    """Where in a row of integers each sum stands. Rows of one layout are merged by adding them."""

    classes: int
    figures: int
    waves: int

    @property
    def parts(self) -> dict[str, slice]:
        """By name: pictures answered, looked at or not; those looked at, by what they were called; figures as charts
        take them; the same in their own units; the logarithms of bets that they are low or high; random features."""
        sizes = {
            "all": 1,
            "classes": self.classes,
            "scores": self.figures,
            "shifts": self.figures,
            "low": self.figures,
            "high": self.figures,
            "waves": self.waves,
        }
        ends = np.cumsum([0, *sizes.values()]).tolist()
        return {name: slice(first, last) for name, first, last in zip(sizes, ends[:-1], ends[1:], strict=True)}

    @property
    def length(self) -> int:
        """Integers in a row."""
        return 1 + self.classes + 4 * self.figures + self.waves

    def packed(self, **parts: NDArray[Any]) -> Sums:
        """A row from its parts; counts are integers already."""
        row = np.zeros(self.length, np.int64)
        for name, where in self.parts.items():
            row[where] = parts[name] if name in COUNTS else whole(parts[name])
        return row

    def passed(self, pictures: int) -> Sums:
        """Pictures that were answered and not looked at."""
        row = self.empty()
        row[self.parts["all"]] = pictures
        return row

    def empty(self) -> Sums:
        """No picture."""
        return np.zeros(self.length, np.int64)

    def read(self, rows: Sums, name: str) -> NDArray[np.float64]:
        """One part of one row or of several."""
        part = rows[..., self.parts[name]]
        return np.asarray(part if name in COUNTS else part / ONE, np.float64)


def whole(values: NDArray[Any]) -> Sums:
    """The sum over pictures, each rounded by itself: the same however pictures are grouped."""
    return np.asarray(np.rint(np.asarray(values, np.float64) * ONE).astype(np.int64).sum(0))
