"""Signatures: how each corruption changes the statistics and the accuracy, measured on the reference."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.type_aliases import FloatArray


@dataclass(frozen=True, eq=False)
class Signatures:
    """One row per kind of corruption and size tried; rows of one kind are adjacent, from small to large changes."""

    kind: NDArray[np.int64]
    """(rows,) index into `names`"""
    names: NDArray[np.str_]
    """(kinds, 3): cause, detail, unit"""
    none: FloatArray
    """(kinds,) size at which nothing changes"""
    size: FloatArray
    """(rows,) size in the unit of the kind"""
    scores: FloatArray
    """(rows, charted statistics) changes of the mean scores"""
    shifts: FloatArray
    """(rows, charted statistics) changes of the means in the units of each statistic"""
    accuracy: FloatArray
    """(rows,) accuracy of the model"""
    clean: FloatArray
    """(1,) accuracy on the same images without corruption"""
    tried: NDArray[np.int64]
    """() number of these images"""

    @classmethod
    def empty(cls, statistic_count: int) -> "Signatures":
        """Create the signatures of a profile for which no corruption was tried."""
        nothing, rows = np.zeros(0), np.zeros((0, statistic_count))
        names = np.zeros((0, 3), "U1")
        indices = np.zeros(0, np.int64)
        return cls(indices, names, nothing, nothing, rows, rows, nothing, np.ones(1), np.array(0))
