"""What each cause does to the charts and to the model, found by trying it on the reference."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.type_aliases import FloatArray


@dataclass(frozen=True, eq=False)
class Signatures:
    """A row for each kind of change and size that was tried; of one kind in a row, by growing change."""

    kind: NDArray[np.int64]
    """which of `names`"""
    names: NDArray[np.str_]
    """(kinds, 3): cause, detail, unit"""
    none: FloatArray
    """(kinds,): the size at which nothing changes"""
    size: FloatArray
    scores: FloatArray
    """(rows, figures): by how much mean scores move"""
    shifts: FloatArray
    """the same in each figure's own units"""
    accuracy: FloatArray
    confidence: FloatArray
    """what the model says its accuracy is, on average"""
    clean: FloatArray
    """accuracy and confidence on the same pictures, unchanged"""
    tried: NDArray[np.int64]
    """(): how many pictures that was"""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For a bundle."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
