"""Random Fourier features: the mean over a set of pictures tells sets apart as a Gaussian kernel would.

The squared distance of two such means is the maximum mean discrepancy of the sets (Rahimi and Recht, 2007; Gretton et
al., 2012). Means are sums over counts, so that several replicas can add theirs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.type_aliases import AnyArray

DIRECTION_COUNT = 128  # directions: a cosine and a sine each
MAX_COMPARED_EXAMPLES = 500  # examples by which the kernel's width is found


@dataclass(frozen=True, eq=False)
class RandomFourierFeatures:
    """Directions in which features are looked at."""

    directions: NDArray[np.float32]
    """(features, HALF), over the kernel's width"""

    def __call__(self, features: AnyArray) -> NDArray[np.float32]:
        """(n, 2 * HALF): rows of length 1."""
        turns = features.astype(np.float32, copy=False) @ self.directions
        return np.concatenate([np.cos(turns), np.sin(turns)], 1) * np.float32(DIRECTION_COUNT**-0.5)


def fit_random_features(reference_features: AnyArray, seed: int = 0) -> RandomFourierFeatures:
    """For features like those of the reference, and of no other: the width must not follow what is compared."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    drawn = rng.standard_normal((reference_features.shape[1], DIRECTION_COUNT))
    return RandomFourierFeatures((drawn / median_distance(reference_features)).astype(np.float32))


def median_distance(reference: AnyArray) -> float:
    """The median distance between two of its examples."""
    places = np.linspace(0, len(reference) - 1, min(len(reference), MAX_COMPARED_EXAMPLES)).astype(int)
    squares = squared_distances(reference[places].astype(np.float64), reference[places].astype(np.float64))
    found = float(np.sqrt(np.median(squares[np.triu_indices(len(places), 1)]))) if len(places) > 1 else 1.0
    return found if found > 0 else 1.0


def squared_distances(left: AnyArray, right: AnyArray) -> NDArray[np.float64]:
    """Squares of the distances between rows."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    return np.asarray(np.maximum(squares, 0))
