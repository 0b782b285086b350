"""Fixed-point sums that replicas report: integers, so that totals are bit-equal in whatever order they are added."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FixedPointSums = NDArray[np.int64]

FIXED_POINT_SCALE = 1 << 24
"""integer that stands for 1.0"""
INTEGER_PARTS = ("all", "cells")
"""parts that are counts, stored without scaling"""


@dataclass(frozen=True)
class SumsLayout:
    """Layout of the sums in a row of integers; rows of one layout are merged by adding them."""

    class_count: int
    statistic_count: int
    fourier_count: int
    condition_count: int = 1

    @property
    def cell_count(self) -> int:
        """Number of cells: pairs of a condition and a predicted class."""
        return self.condition_count * self.class_count

    @property
    def slices(self) -> dict[str, slice]:
        """Slice of each part in a row, by name.

        `all`: images answered, observed or not; `cells`: observed images by condition and predicted class; `scores`:
        clipped scores as charts take them; `shifts`: shifts in the units of each statistic; `low`, `high`: logarithmic
        gains of bets on low and high ranks; `waves`: random Fourier features.
        """
        sizes = {
            "all": 1,
            "cells": self.cell_count,
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
        """Number of integers in a row."""
        return 1 + self.cell_count + 4 * self.statistic_count + self.fourier_count

    def pack(self, **parts: NDArray[Any]) -> FixedPointSums:
        """Pack parts into a row: counts as they are, values (images, columns) as fixed-point sums over images."""
        row = np.zeros(self.row_length, np.int64)
        for name, where in self.slices.items():
            row[where] = parts[name] if name in INTEGER_PARTS else quantized_sum(parts[name])
        return row

    def pack_unobserved(self, image_count: int) -> FixedPointSums:
        """Return the row of images that were answered but not observed."""
        row = self.empty_row()
        row[self.slices["all"]] = image_count
        return row

    def empty_row(self) -> FixedPointSums:
        """Return the row of no images, all zeros."""
        return np.zeros(self.row_length, np.int64)

    def read_part(self, rows: FixedPointSums, name: str) -> NDArray[np.float64]:
        """Return one part of one row or of several as floating-point numbers."""
        part = rows[..., self.slices[name]]
        return np.asarray(part if name in INTEGER_PARTS else part / FIXED_POINT_SCALE, np.float64)

    def read_class_counts(self, rows: FixedPointSums) -> NDArray[np.float64]:
        """Return the observed images by predicted class, of one row or of several."""
        return sum_over_conditions(self.read_part(rows, "cells"), self.class_count)

    def read_condition_counts(self, rows: FixedPointSums) -> NDArray[np.float64]:
        """Return the observed images by condition, of one row or of several."""
        return sum_over_classes(self.read_part(rows, "cells"), self.class_count)


def sum_over_conditions(cell_counts: NDArray[np.float64], class_count: int) -> NDArray[np.float64]:
    """Return (..., classes) counts by class from counts by cell (..., cells)."""
    return np.asarray(split_cells(cell_counts, class_count).sum(-2))


def sum_over_classes(cell_counts: NDArray[np.float64], class_count: int) -> NDArray[np.float64]:
    """Return (..., conditions) counts by condition from counts by cell (..., cells)."""
    return np.asarray(split_cells(cell_counts, class_count).sum(-1))


def quantized_sum(values: NDArray[Any]) -> FixedPointSums:
    """Return the fixed-point sum over images, each rounded by itself, so that it does not depend on their grouping."""
    return np.asarray(np.rint(np.asarray(values, np.float64) * FIXED_POINT_SCALE).astype(np.int64).sum(0))


def split_cells(cell_counts: NDArray[np.float64], class_count: int) -> NDArray[np.float64]:
    """Return (..., conditions, classes) counts of cells (..., cells), also of no rows at all."""
    return cell_counts.reshape(*cell_counts.shape[:-1], cell_counts.shape[-1] // class_count, class_count)
