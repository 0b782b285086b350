"""Colour jitter as one matrix per image: brightness, contrast, saturation and hue in a single pass."""

import numpy as np
import torch
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.images.srgb import LUMA_WEIGHTS
from equipoise.type_aliases import FloatArray

RGB_TO_YIQ = np.array([LUMA_WEIGHTS, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
"""matrix from RGB to grey and the chroma plane, in which hue is an angle"""


def apply_color_jitter(
    images: Tensor, brightness: FloatArray, contrast: FloatArray, saturation: FloatArray, hue: FloatArray
) -> Tensor:
    """Change brightness, contrast, saturation and hue of each image by its own amounts, in this order.

    Values are not clamped in between, so that one matrix per image is enough; hue rotates about grey and keeps it.
    """
    if images.shape[1] == 1:
        matrices = (brightness * contrast)[:, None, None]
        mean = images.mean((1, 2, 3))
    elif images.shape[1] == 3:
        matrices = (brightness * contrast)[:, None, None] * (hue_matrices(hue) @ saturation_matrices(saturation))
        mean = torch.einsum("nc,c->n", images.mean((2, 3)), torch.from_numpy(LUMA_WEIGHTS).to(images))
    else:
        raise EquipoiseError(
            "augment-invalid", f"cannot change colours: images must have 1 or 3 channels, these have {images.shape[1]}"
        )
    offset = torch.from_numpy((1 - contrast) * brightness).to(images) * mean
    jittered = torch.bmm(torch.from_numpy(matrices).to(images), images.flatten(2)) + offset[:, None, None]
    return jittered.view_as(images)


def saturation_matrices(factors: FloatArray) -> FloatArray:
    """Return 3x3 matrices that scale each pixel's distance from its grey by a factor."""
    grey_weight = 1 - factors[:, None, None]
    return np.asarray(factors[:, None, None] * np.eye(3) + grey_weight * np.ones((3, 1)) * LUMA_WEIGHTS)


def hue_matrices(turns: FloatArray) -> FloatArray:
    """Return 3x3 matrices that rotate hue about grey by turns of the colour circle."""
    cos, sin, zero, one = (
        np.cos(2 * np.pi * turns),
        np.sin(2 * np.pi * turns),
        np.zeros(len(turns)),
        np.ones(len(turns)),
    )
    rotation = np.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], 1).reshape(-1, 3, 3)
    return np.asarray(np.linalg.inv(RGB_TO_YIQ) @ rotation @ RGB_TO_YIQ)
