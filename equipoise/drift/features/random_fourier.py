"""Random Fourier features: the mean over a set of pictures tells sets apart as a Gaussian kernel would.

The squared distance of two such means is the maximum mean discrepancy of the sets (Rahimi and Recht, 2007; Gretton et
al., 2012). Means are sums over counts, so that several replicas can add theirs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

HALF = 128  # directions: a cosine and a sine each
MOST_COMPARED = 500  # examples by which the kernel's width is found


@dataclass(frozen=True, eq=False)
class Waves:
    """Directions in which features are looked at."""

    directions: NDArray[np.float32]
    """(features, HALF), over the kernel's width"""

    def __call__(self, features: Array) -> NDArray[np.float32]:
        """(n, 2 * HALF): rows of length 1."""
        turns = features.astype(np.float32, copy=False) @ self.directions
        return np.concatenate([np.cos(turns), np.sin(turns)], 1) * np.float32(HALF**-0.5)


def waves(reference: Array, seed: int = 0) -> Waves:
    """For features like those of the reference, and of no other: the width must not follow what is compared."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    drawn = rng.standard_normal((reference.shape[1], HALF))
    return Waves((drawn / width(reference)).astype(np.float32))


def width(reference: Array) -> float:
    """The median distance between two of its examples."""
    places = np.linspace(0, len(reference) - 1, min(len(reference), MOST_COMPARED)).astype(int)
    squares = distances(reference[places].astype(np.float64), reference[places].astype(np.float64))
    found = float(np.sqrt(np.median(squares[np.triu_indices(len(places), 1)]))) if len(places) > 1 else 1.0
    return found if found > 0 else 1.0


def distances(one: Array, other: Array) -> NDArray[np.float64]:
    """Squares of the distances between rows."""
    squares = (one**2).sum(1)[:, None] + (other**2).sum(1) - 2 * one @ other.T
    return np.asarray(np.maximum(squares, 0))
