"""The sRGB curve: from shares of full exposure to what a picture's bytes stand for, and back."""

import numpy as np
from numpy.typing import NDArray


def srgb_encode(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of full exposure on the sRGB curve, 0 to 1."""
    return np.asarray(
        np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 1e-9) ** (1 / 2.4) - 0.055)
    )


def srgb_decode(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sRGB curve back to shares of full exposure."""
    return np.asarray(np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4))
