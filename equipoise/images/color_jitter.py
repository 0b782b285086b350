"""Colour changes of pictures as one matrix a picture: brightness, contrast, saturation and hue in a single pass."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

GREY = np.array([0.299, 0.587, 0.114])
"""what red, green and blue give to grey"""
YIQ = np.array([GREY, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
"""grey, and the plane in which hue is an angle"""


def jittered(images: Tensor, brightness: Array, contrast: Array, saturation: Array, hue: Array) -> Tensor:
    """Each picture with its factors of brightness, contrast and saturation, and its turn of hue, in this order.

    Values are not clamped in between, which is what makes it one matrix; hue turns about grey and keeps it.
    """
    if images.shape[1] == 1:
        matrices = (brightness * contrast)[:, None, None]
        mean = images.mean((1, 2, 3))
    elif images.shape[1] == 3:
        matrices = (brightness * contrast)[:, None, None] * (turned(hue) @ saturated(saturation))
        mean = torch.einsum("nc,c->n", images.mean((2, 3)), torch.from_numpy(GREY).to(images))
    else:
        raise ValueError(f"colours are changed in pictures of 1 or 3 channels, these have {images.shape[1]}")
    offset = torch.from_numpy((1 - contrast) * brightness).to(images) * mean
    changed = torch.bmm(torch.from_numpy(matrices).to(images), images.flatten(2)) + offset[:, None, None]
    return changed.view_as(images)


def saturated(factors: Array) -> Array:
    """3x3 matrices that move each pixel from its grey by a factor."""
    away = 1 - factors[:, None, None]
    return np.asarray(factors[:, None, None] * np.eye(3) + away * np.ones((3, 1)) * GREY)


def turned(turns: Array) -> Array:
    """3x3 matrices that turn hue about grey, by turns of the circle."""
    cos, sin, zero, one = (
        np.cos(2 * np.pi * turns),
        np.sin(2 * np.pi * turns),
        np.zeros(len(turns)),
        np.ones(len(turns)),
    )
    rotation = np.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], 1).reshape(-1, 3, 3)
    return np.asarray(np.linalg.inv(YIQ) @ rotation @ YIQ)
