"""Light and camera in physical units, on batches of pictures in linear light (examples, channels, height, width).

A picture's values are the share of full exposure that reaches each pixel. Functions take one number for each
picture, so that every picture of a batch has its own light.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from equipoise.images.srgb import srgb_decode, srgb_encode

WHITE_BALANCE_KELVIN = 6500.0
"""kelvin of the light under which the camera sees white as white"""
RGB_WAVELENGTH_METERS = (600e-9, 540e-9, 450e-9)
"""metres: where the camera's red, green and blue are most sensitive"""
SECOND_RADIATION_CONSTANT = 1.438777e-2
"""second radiation constant, metre kelvin"""
LINEAR_LIGHT_LEVELS = 4096
"""of linear light that are told apart: fine enough for eight bits after the sRGB curve"""
NOISE_TABLE_SIZE = 1 << 20
"""normal draws that pictures take their noise from"""


def blackbody_gain(kelvin: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gain of red, green and blue under a black body of `kelvin`, one row each; green stays as it is.

    Planck's law at the three bands, over the same at 6500 K: the logarithm of red over blue falls as 1/kelvin.
    """
    bands = np.asarray(RGB_WAVELENGTH_METERS)
    gain = np.expm1(SECOND_RADIATION_CONSTANT / (bands * WHITE_BALANCE_KELVIN)) / np.expm1(
        SECOND_RADIATION_CONSTANT / (bands * np.asarray(kelvin)[:, None])
    )
    return np.asarray(gain / gain[:, 1:2])


def broadcast_per_image(values: NDArray[np.float64], like: Tensor) -> Tensor:
    """One number a picture, or a row of one a channel, so that it multiplies a batch."""
    held = torch.from_numpy(np.ascontiguousarray(values)).to(like)
    return held.view(len(held), -1, 1, 1)


def add_veil(linear: Tensor, share: Tensor, light: Tensor) -> Tensor:
    """A reflection over the whole picture: `share` of what is seen is the light itself."""
    return linear + share * (light - linear)


def gaussian_spot(height: int, width: int, centre: NDArray[np.float64], radius: float) -> Tensor:
    """A round highlight about each `centre` (row, column; -1 to 1), 1 in its middle: (examples, 1, height, width)."""
    rows, columns = (torch.linspace(-1, 1, count, dtype=torch.float64) for count in (height, width))
    at = torch.from_numpy(centre)
    down = torch.exp(-(((rows - at[:, :1]) / radius) ** 2))
    across = torch.exp(-(((columns - at[:, 1:]) / radius) ** 2))
    return (down[:, None, :, None] * across[:, None, None, :]).float()


def gaussian_blur(images: Tensor, sigma: NDArray[np.float64], max_sigma: float) -> Tensor:
    """Each picture out of focus by a Gaussian of its own `sigma` in pixels; 0 leaves it as it is.

    `most` is the largest sigma that any batch may have: what is added up for a picture depends on it alone.
    """
    count, channels, height, width = images.shape
    reach = min(int(np.ceil(3 * max_sigma)), height - 1, width - 1)
    offsets = np.arange(-reach, reach + 1)
    weights = np.exp(-0.5 * (offsets / np.maximum(sigma, 1e-3)[:, None]) ** 2)
    kernels = torch.from_numpy(weights / weights.sum(1, keepdims=True)).to(images).repeat_interleave(channels, 0)
    flat = images.reshape(1, count * channels, height, width)
    flat = F.pad(flat, (reach, reach, reach, reach), mode="reflect")
    flat = F.conv2d(flat, kernels[:, None, None, :], groups=count * channels)
    flat = F.conv2d(flat, kernels[:, None, :, None], groups=count * channels)
    return flat.view(count, channels, height, width)


def linear_to_srgb8(linear: Tensor) -> Tensor:
    """Eight bits along the sRGB curve, by a table: the same bits on every processor."""
    table = (
        torch.from_numpy(srgb_encode(np.arange(LINEAR_LIGHT_LEVELS) / (LINEAR_LIGHT_LEVELS - 1)))
        .mul(255)
        .round()
        .to(torch.uint8)
    )
    places = linear.mul(LINEAR_LIGHT_LEVELS - 1).add_(0.5).clamp_(0, LINEAR_LIGHT_LEVELS - 1)
    return lookup_values(table, places)


def srgb8_to_linear(images: Tensor) -> Tensor:
    """Linear light of eight bits along the sRGB curve."""
    table = torch.from_numpy(srgb_decode(np.arange(256) / 255)).float()
    return lookup_values(table, images)


def lookup_values(table: Tensor, indices: Tensor) -> Tensor:
    """What stands in `table` at each place: six times as fast as an index."""
    return table.to(indices.device).index_select(0, indices.to(torch.int32).reshape(-1)).view(indices.shape)


def sensor_noise(positions: NDArray[np.float64], like: Tensor) -> Tensor:
    """Normal draws for a batch like `like`: for each picture a stretch of a fixed line, from its place (0 to 1) on."""
    count = like[0].numel()
    line = fixed_normal_draws(max(NOISE_TABLE_SIZE, 4 * count), like.device)
    starts = (positions * (len(line) - count)).astype(np.int64)
    return torch.stack([line[start : start + count] for start in starts.tolist()]).view_as(like)


@lru_cache(maxsize=4)
def fixed_normal_draws(count: int, device: torch.device) -> Tensor:
    """Always the same line of normal draws."""
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=0)).standard_normal(count, np.float32)).to(device)
