"""The sRGB transfer curve from linear light (fraction of full exposure) to encoded values, and back."""

import numpy as np
from numpy.typing import NDArray

LUMA_WEIGHTS = np.array([0.299, 0.587, 0.114])
"""weights of red, green and blue in grey, along the sRGB curve"""


def srgb_encode(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Encode linear light from 0 to 1 along the sRGB curve to values from 0 to 1."""
    return np.asarray(
        np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * np.maximum(linear, 1e-9) ** (1 / 2.4) - 0.055)
    )


def srgb_decode(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Decode sRGB values from 0 to 1 to linear light from 0 to 1."""
    return np.asarray(np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4))
