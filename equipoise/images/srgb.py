"""The sRGB curve: from shares of full exposure to what a picture's bytes stand for, and back."""

import numpy as np
from numpy.typing import NDArray


def coded(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of full exposure on the sRGB curve, 0 to 1."""
    return np.asarray(
        np.where(shares <= 0.0031308, 12.92 * shares, 1.055 * np.maximum(shares, 1e-9) ** (1 / 2.4) - 0.055)
    )


def uncoded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sRGB curve back to shares of full exposure."""
    return np.asarray(np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4))
