"""Statistics of the confidence of a model, from its logits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

CONFIDENCE_STATISTICS = ("log odds", "energy")


def confidence_statistics(logits: NDArray[np.floating[Any]], temperature: float) -> NDArray[np.float32]:
    """Return (n, 2): the log odds of the most likely class, and the energy (log sum exp of the logits)."""
    scaled = np.asarray(logits, np.float64) / temperature
    first = scaled.max(1)
    total = first + np.log(np.exp(scaled - first[:, None]).sum(1))
    with np.errstate(divide="ignore"):
        others = np.log(-np.expm1(first - total))
    odds = np.clip(first - total - others, -30, 30)
    return np.stack([odds, total], 1).astype(np.float32)
