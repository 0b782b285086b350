"""Known conditions of a model: states of the world, such as two lights, each with statistics of its own.

An image belongs to the condition under which its image statistics are most likely, given its predicted class. The
choice depends on that image alone, so replicas choose alike whichever images they see together. A cell is a pair of a
condition and a predicted class; its index is condition * class count + class.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.type_aliases import AnyArray

PUBLISHED_CONDITION = "as published"
"""name of the condition of the reference split"""
MAX_ABS_DEVIATION = 4.0  # standard deviations: one odd statistic alone does not choose the condition


@dataclass(frozen=True, eq=False)
class ConditionRule:
    """Normal distributions of the input statistics of each condition and class, by which examples are assigned."""

    mean: NDArray[np.float64]
    """(conditions, classes, statistics of the input)"""
    scale: NDArray[np.float64]
    """(conditions, classes, statistics of the input) standard deviations"""
    weights: NDArray[np.float64]
    """(statistics of the input,) weight of each in the choice"""

    def assign(self, statistics: AnyArray, predicted_classes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return (n,) the index of the most likely condition of each image, given its statistics and class.

        Statistics count as independent, each with its weight; columns after those of the input are ignored.
        """
        values, distances = statistics[:, : len(self.weights)], []
        for mean, scale in zip(self.mean, self.scale, strict=True):
            deviations = (values - mean[predicted_classes]) / scale[predicted_classes]
            squares = (self.weights * np.minimum(deviations**2, MAX_ABS_DEVIATION**2)).sum(1)
            distances.append(squares + 2 * (self.weights * np.log(scale)).sum(1)[predicted_classes])
        return np.asarray(np.argmin(distances, 0), np.int64)
