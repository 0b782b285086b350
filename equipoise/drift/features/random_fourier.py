"""Random Fourier features: their mean over a set of images tells sets apart as a Gaussian kernel would.

The squared distance of two such means is the maximum mean discrepancy of the sets (Rahimi and Recht, 2007; Gretton et
al., 2012). Means are sums over counts, so replicas can add up theirs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.spacing import evenly_spaced_indices
from equipoise.type_aliases import AnyArray

DIRECTION_COUNT = 128  # a cosine and a sine each
MAX_COMPARED_EXAMPLES = 500  # examples from which the kernel width is estimated


@dataclass(frozen=True, eq=False)
class RandomFourierFeatures:
    """Random directions onto which features are projected."""

    directions: NDArray[np.float32]
    """(features, DIRECTION_COUNT), divided by the kernel width"""

    def __call__(self, features: AnyArray) -> NDArray[np.float32]:
        """Return (n, 2 * DIRECTION_COUNT): cosines and sines of the projections, in rows of length 1."""
        angles = features.astype(np.float32, copy=False) @ self.directions
        return np.concatenate([np.cos(angles), np.sin(angles)], 1) * np.float32(DIRECTION_COUNT**-0.5)


def fit_random_features(
    reference_features: AnyArray, seed: int = 0, direction_count: int = DIRECTION_COUNT
) -> RandomFourierFeatures:
    """Draw directions for a kernel as wide as the reference; its width must not depend on the compared window.

    Without directions, features are not compared: all charts of them stay at 0.
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    directions = rng.standard_normal((reference_features.shape[1], direction_count))
    return RandomFourierFeatures((directions / median_distance(reference_features)).astype(np.float32))


def median_distance(reference: AnyArray) -> float:
    """Return the median distance between two of at most MAX_COMPARED_EXAMPLES examples; 1 where it would be 0."""
    indices = evenly_spaced_indices(len(reference), MAX_COMPARED_EXAMPLES)
    squares = squared_distances(reference[indices].astype(np.float64), reference[indices].astype(np.float64))
    median = float(np.sqrt(np.median(squares[np.triu_indices(len(indices), 1)]))) if len(indices) > 1 else 1.0
    return median if median > 0 else 1.0


def squared_distances(left: AnyArray, right: AnyArray) -> NDArray[np.float64]:
    """Return the squared distances between the rows of two tables."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    return np.asarray(np.maximum(squares, 0))
