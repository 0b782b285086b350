"""Light and camera in physical units, on batches of linear-light images (images, channels, height, width).

Values are the fraction of full exposure that reaches each pixel. Functions take one parameter per image, so that every
image of a batch has its own light.
"""

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from equipoise.images.png import jpeg_round_trip
from equipoise.images.srgb import srgb_decode, srgb_encode

WHITE_BALANCE_KELVIN = 6500.0
"""colour temperature of the light under which the camera sees white as white"""
RGB_WAVELENGTH_METERS = (600e-9, 540e-9, 450e-9)
"""wavelengths at which the camera's red, green and blue are most sensitive"""
SECOND_RADIATION_CONSTANT = 1.438777e-2
"""second radiation constant hc/k, in metre kelvin"""
LINEAR_LIGHT_LEVELS = 4096
"""levels of linear light in the lookup table: fine enough for eight bits after the sRGB curve"""
NOISE_TABLE_SIZE = 1 << 20
"""normal draws in the table from which images take their noise"""
HIGHLIGHT_RADIUS = 0.35
"""radius of a reflected highlight, as a fraction of half the side"""


def blackbody_gain(kelvin: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gain of red, green and blue under a black body of each temperature, one row each; green is 1.

    Planck's law at the three bands, relative to 6500 K: the logarithm of red over blue is linear in 1/kelvin.
    """
    bands = np.asarray(RGB_WAVELENGTH_METERS)
    gain = np.expm1(SECOND_RADIATION_CONSTANT / (bands * WHITE_BALANCE_KELVIN)) / np.expm1(
        SECOND_RADIATION_CONSTANT / (bands * np.asarray(kelvin)[:, None])
    )
    return np.asarray(gain / gain[:, 1:2])


def broadcast_per_image(values: NDArray[np.float64], like: Tensor) -> Tensor:
    """Reshape one number per image, or one per image and channel, so that it broadcasts over a batch."""
    tensor = torch.from_numpy(np.ascontiguousarray(values)).to(like)
    return tensor.view(len(tensor), -1, 1, 1)


def add_veil(linear: Tensor, share: Tensor, light: Tensor) -> Tensor:
    """Add a reflection over the whole image: a fraction `share` of each pixel is replaced by the light itself."""
    return linear + share * (light - linear)


def gaussian_spot(height: int, width: int, centre: NDArray[np.float64], radius: float = HIGHLIGHT_RADIUS) -> Tensor:
    """Return a Gaussian highlight of peak 1 at each `centre` (row, column; -1 to 1): (images, 1, height, width)."""
    rows, columns = (torch.linspace(-1, 1, count, dtype=torch.float64) for count in (height, width))
    centres = torch.from_numpy(centre)
    down = torch.exp(-(((rows - centres[:, :1]) / radius) ** 2))
    across = torch.exp(-(((columns - centres[:, 1:]) / radius) ** 2))
    return (down[:, None, :, None] * across[:, None, None, :]).float()


def gaussian_blur(images: Tensor, sigma: NDArray[np.float64], max_sigma: float) -> Tensor:
    """Blur each image by a Gaussian of its own `sigma` in pixels; 0 leaves it unchanged.

    `max_sigma` is the largest sigma of any batch: it fixes the kernel size, so that the result for an image does not
    depend on the others in its batch.
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
    """Encode linear light as 8-bit sRGB by a lookup table, which gives the same bits on every processor."""
    table = (
        torch.from_numpy(srgb_encode(np.arange(LINEAR_LIGHT_LEVELS) / (LINEAR_LIGHT_LEVELS - 1)))
        .mul(255)
        .round()
        .to(torch.uint8)
    )
    levels = linear.mul(LINEAR_LIGHT_LEVELS - 1).add_(0.5).clamp_(0, LINEAR_LIGHT_LEVELS - 1)
    return lookup_values(table, levels)


def srgb8_to_linear(images: Tensor) -> Tensor:
    """Decode 8-bit sRGB to linear light."""
    table = torch.from_numpy(srgb_decode(np.arange(256) / 255)).float()
    return lookup_values(table, images)


def lookup_values(table: Tensor, indices: Tensor) -> Tensor:
    """Return `table[indices]`; index_select is six times as fast as indexing."""
    return table.to(indices.device).index_select(0, indices.to(torch.int32).reshape(-1)).view(indices.shape)


def sensor_noise(positions: NDArray[np.float64], like: Tensor) -> Tensor:
    """Return normal draws of the shape of `like`: each image takes a fixed table from its position (0 to 1) on."""
    count = like[0].numel()
    table = fixed_normal_draws(max(NOISE_TABLE_SIZE, 4 * count), like.device)
    starts = (positions * (len(table) - count)).astype(np.int64)
    return torch.stack([table[start : start + count] for start in starts.tolist()]).view_as(like)


def compress_jpeg(images: Tensor, quality: int) -> Tensor:
    """Return uint8 images as they come back from JPEG compression of a quality from 1 to 100."""
    return torch.stack([torch.from_numpy(jpeg_round_trip(image, quality)) for image in images])


@lru_cache(maxsize=4)
def fixed_normal_draws(count: int, device: torch.device) -> Tensor:
    """Return a fixed table of standard normal draws, always the same."""
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=0)).standard_normal(count, np.float32)).to(device)
