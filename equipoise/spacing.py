"""Evenly spaced choices from a sequence."""

import numpy as np
from numpy.typing import NDArray


def evenly_spaced_indices(count: int, max_count: int) -> NDArray[np.int64]:
    """Return up to `max_count` indices into `count` items, from the first to the last."""
    return np.linspace(0, count - 1, min(count, max_count)).astype(np.int64)
