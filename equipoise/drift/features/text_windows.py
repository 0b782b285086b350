"""Windows of a language model: texts of one length in the reference, and of any length up to it in requests.

A short text is predicted worse, because its characters have less before them, and its shares vary more. So its nats are
compared with those of the reference after as many characters, and all that is measured on n of the N characters of a
window counts by sqrt(n / N) of its difference from the reference: then it varies as much as a whole window does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.type_aliases import AnyArray, FloatArray


@dataclass(frozen=True)
class WindowReference:
    """What is usual for the windows of a reference, all of which have one length."""

    nats_by_context: tuple[float, ...]
    """mean nats of the character after 1, 2, ... characters of a window"""
    rare_share: float
    """mean share of rare characters"""

    @property
    def usual_nats(self) -> float:
        """Mean nats of the characters of a window after its first."""
        return float(np.mean(self.nats_by_context))

    def scale_nats(self, nats_per_token: AnyArray, lengths: NDArray[np.int64]) -> FloatArray:
        """Return (n,) the nats of texts as those of whole windows; of one character, which has none, as usual."""
        means = np.cumsum(self.nats_by_context) / np.arange(1, len(self.nats_by_context) + 1)
        counts = np.clip(lengths - 1, 0, len(means))
        excess = np.where(counts > 0, np.asarray(nats_per_token, np.float64) - means[np.maximum(counts, 1) - 1], 0.0)
        return np.asarray(self.usual_nats + np.sqrt(counts / len(means)) * excess)

    def scale_rare_shares(self, shares: FloatArray, lengths: NDArray[np.int64]) -> FloatArray:
        """Return (n,) the shares of rare characters as they vary in whole windows."""
        return np.asarray(self.rare_share + self.weights(lengths) * (shares - self.rare_share))

    def weights(self, lengths: NDArray[np.int64]) -> FloatArray:
        """Return (n,) the weights of what is measured on texts of these lengths; 1 for a whole window."""
        window = len(self.nats_by_context) + 1
        return np.sqrt(np.minimum(lengths, window) / window)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the reference as arrays by name, to be stored in a file."""
        return {"nats_by_context": np.array(self.nats_by_context), "rare_share": np.array(self.rare_share)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "WindowReference":
        """Build the reference from the arrays of `to_arrays`."""
        return cls(tuple(arrays["nats_by_context"].tolist()), float(arrays["rare_share"]))
