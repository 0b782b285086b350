"""Corruptions of camera and light, in physical units, that can be applied to the images of a reference.

Each corruption is tried at several sizes, so that the drift of a window of requests can later be attributed to one of
them, and its size estimated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from equipoise.images.augment import to_uint8, warp_images
from equipoise.images.camera import (
    add_veil,
    blackbody_gain,
    broadcast_per_image,
    compress_jpeg,
    gaussian_blur,
    gaussian_spot,
    linear_to_srgb8,
    sensor_noise,
    srgb8_to_linear,
)

CAUSE_NAMES = (
    *("colour temperature", "tint", "exposure", "contrast", "reflection", "blur", "noise", "compression", "geometry"),
    *("label shift", "new class", "features"),
)
"""all causes that a verdict may name; the last stands for a change that has no cause of its own"""
HIGHLIGHT_OFFSETS = (-0.6, 0.0, 0.6)  # from the centre of the image, down and to the right, in half sides
HIGHLIGHT_BRIGHTNESSES = (0.2, 0.8)  # of full light

ImageTransform = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class Corruption:
    """One way in which images may change, and the sizes at which it is tried."""

    cause: str
    detail: str
    unit: str
    neutral_size: float
    """size at which nothing changes"""
    sizes: tuple[float, ...]
    apply: ImageTransform
    requires_color: bool = False
    """apply to colour images only"""


def apply_color_temperature(pictures: Tensor, kelvin: float) -> Tensor:
    """Return images under light of another colour temperature; the camera stays balanced for 6500 K."""
    linear = srgb8_to_linear(pictures)
    return linear_to_srgb8(linear * broadcast_per_image(blackbody_gain(np.full(len(linear), kelvin)), linear))


def shift_white_balance(pictures: Tensor, kelvin: float) -> Tensor:
    """Return images under light of a colour temperature that changes red and blue only, with green unchanged."""
    red, _, blue = blackbody_gain(np.array([kelvin]))[0]
    gain = torch.tensor([(red / blue) ** 0.5, 1, (blue / red) ** 0.5], dtype=torch.float32).view(1, 3, 1, 1)
    return linear_to_srgb8(srgb8_to_linear(pictures) * gain)


def shift_tint(pictures: Tensor, stops: float) -> Tensor:
    """Return images under light with more green by so many stops; less below 0."""
    gain = torch.tensor([1, 2**stops, 1]).view(1, 3, 1, 1)
    return linear_to_srgb8(srgb8_to_linear(pictures) * gain)


def adjust_exposure(pictures: Tensor, stops: float) -> Tensor:
    """Return images with more light by so many stops; less below 0."""
    return linear_to_srgb8(srgb8_to_linear(pictures) * 2**stops)


def adjust_contrast(pictures: Tensor, factor: float) -> Tensor:
    """Return images with the distance of each value from the mean of its image multiplied by a factor."""
    values = pictures.float()
    mean = values.mean((1, 2, 3), keepdim=True)
    return to_uint8(mean + factor * (values - mean))


def add_veiling_glare(pictures: Tensor, share: float) -> Tensor:
    """Return images with light reflected over the whole view; `share` is a fraction of full light."""
    linear = srgb8_to_linear(pictures)
    return linear_to_srgb8(add_veil(linear, torch.tensor(share), torch.tensor(1.0)))


def build_highlight(down: float, right: float) -> ImageTransform:
    """Build the reflection of a lamp, centred at an offset from the middle of the image in half sides."""

    def add_highlight(pictures: Tensor, brightness: float) -> Tensor:
        linear = srgb8_to_linear(pictures)
        centre = np.tile([down, right], (len(linear), 1))
        return linear_to_srgb8(linear + brightness * gaussian_spot(linear.shape[2], linear.shape[3], centre).to(linear))

    return add_highlight


def blur_images(pictures: Tensor, sigma: float) -> Tensor:
    """Return images out of focus, blurred by a Gaussian of `sigma` pixels."""
    linear = srgb8_to_linear(pictures)
    return linear_to_srgb8(gaussian_blur(linear, np.full(len(linear), sigma), sigma))


def add_grain(pictures: Tensor, levels: float) -> Tensor:
    """Return images with Gaussian noise of a standard deviation in levels of 255, the same in every call."""
    values = pictures.float()
    return to_uint8(values + levels * sensor_noise(np.linspace(0, 1, len(values)), values))


def compress_images(pictures: Tensor, quality: float) -> Tensor:
    """Return images after a JPEG round trip at a quality from 1 to 100."""
    return compress_jpeg(pictures, round(quality))


def rotate_images(pictures: Tensor, degrees: float) -> Tensor:
    """Return images turned counterclockwise about their centre; exact for multiples of 90 degrees."""
    if degrees % 90 == 0:
        return torch.rot90(pictures, int(degrees // 90), (2, 3)).contiguous()
    angle = np.deg2rad(degrees)
    return warp_images(
        pictures, repeat_affine_matrix(len(pictures), [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    )


def desaturate_images(pictures: Tensor, share: float) -> Tensor:
    """Return images with colours moved towards their grey by a share; below 0, away from it."""
    values = pictures.float()
    return to_uint8(torch.lerp(values, values.mean(1, keepdim=True), share))


def swap_red_blue(pictures: Tensor, _: float) -> Tensor:
    """Return images with red and blue swapped, as from a client that sends BGR."""
    return pictures.flip(1)


def build_translation(down: float, right: float) -> ImageTransform:
    """Build a translation by a share of the side; uncovered pixels repeat the edge."""

    def translate(pictures: Tensor, share: float) -> Tensor:
        steps = [
            round(share * direction * side) for direction, side in zip((down, right), pictures.shape[2:], strict=True)
        ]
        pad = [max(steps[1], 0), max(-steps[1], 0), max(steps[0], 0), max(-steps[0], 0)]
        height, width = pictures.shape[2:]
        framed = F.pad(pictures.float(), pad, mode="replicate").to(torch.uint8)
        return framed[:, :, max(-steps[0], 0) :, max(-steps[1], 0) :][:, :, :height, :width]

    return translate


def zoom_images(pictures: Tensor, factor: float) -> Tensor:
    """Return images seen from nearer (factor above 1), or from farther away with a black border."""
    return warp_images(pictures, repeat_affine_matrix(len(pictures), np.eye(2) / factor))


def build_flip(axis: int) -> ImageTransform:
    """Build the reflection of images (n, channels, height, width) along an axis: 3 mirrors, 2 turns upside down."""
    return lambda pictures, _: pictures.flip(axis)


def invert_corruption(pictures: Tensor, cause: str, detail: str, value: float) -> Tensor | None:
    """Return images without a cause of the given size, or None if it cannot be inverted."""
    if cause == "colour temperature":
        gain = blackbody_gain(np.array([value]))[0]
        return linear_to_srgb8(srgb8_to_linear(pictures) / torch.tensor(gain, dtype=torch.float32).view(1, 3, 1, 1))
    if cause == "tint":
        return shift_tint(pictures, -value)
    if cause == "exposure":
        return adjust_exposure(pictures, -value)
    if cause == "contrast":
        return adjust_contrast(pictures, 1 / value)
    if cause == "reflection" and detail == "all over" and value < 1:
        return linear_to_srgb8((srgb8_to_linear(pictures) - value) / (1 - value))
    return None


def repeat_affine_matrix(count: int, matrix: Any) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Repeat a 2x2 matrix as (count, 3, 3) affine matrices without translation."""
    affine = np.eye(3)
    affine[:2, :2] = matrix
    return np.tile(affine, (count, 1, 1))


def all_corruptions() -> list[Corruption]:
    """Return all corruptions that are tried on a reference."""
    directions = {"down": (1, 0), "up": (-1, 0), "right": (0, 1), "left": (0, -1)}
    warm, cool = (5500.0, 4500.0, 3500.0, 2700.0), (7500.0, 9000.0, 12000.0, 20000.0)
    return [
        Corruption("colour temperature", "warmer", "K", 6500, warm, apply_color_temperature, requires_color=True),
        Corruption("colour temperature", "cooler", "K", 6500, cool, apply_color_temperature, requires_color=True),
        Corruption("colour temperature", "warmer", "K", 6500, warm, shift_white_balance, requires_color=True),
        Corruption("colour temperature", "cooler", "K", 6500, cool, shift_white_balance, requires_color=True),
        Corruption("tint", "greener", "stops", 0, (0.1, 0.25, 0.5), shift_tint, requires_color=True),
        Corruption("tint", "magenta", "stops", 0, (-0.1, -0.25, -0.5), shift_tint, requires_color=True),
        Corruption("exposure", "brighter", "stops", 0, (0.25, 0.5, 1, 2), adjust_exposure),
        Corruption("exposure", "darker", "stops", 0, (-0.25, -0.5, -1, -2, -3), adjust_exposure),
        Corruption("contrast", "lower", "times", 1, (0.8, 0.6, 0.4, 0.2), adjust_contrast),
        Corruption("contrast", "higher", "times", 1, (1.25, 1.6, 2.5), adjust_contrast),
        Corruption(
            "features",
            "colours washed out",
            "of their saturation",
            0,
            (0.3, 0.6, 1),
            desaturate_images,
            requires_color=True,
        ),
        Corruption(
            "features",
            "colours too strong",
            "of their saturation",
            0,
            (-0.3, -0.6, -1),
            desaturate_images,
            requires_color=True,
        ),
        Corruption("features", "red and blue swapped", "times", 0, (1,), swap_red_blue, requires_color=True),
        Corruption("reflection", "all over", "of full light", 0, (0.02, 0.05, 0.1, 0.2, 0.4), add_veiling_glare),
        *(
            Corruption(
                "reflection",
                f"at {down:+.1f} down, {right:+.1f} right",
                "of full light",
                0,
                HIGHLIGHT_BRIGHTNESSES,
                build_highlight(down, right),
            )
            for down in HIGHLIGHT_OFFSETS
            for right in HIGHLIGHT_OFFSETS
        ),
        Corruption("blur", "", "pixels", 0, (0.4, 0.7, 1, 1.5, 3), blur_images),
        Corruption("noise", "", "levels of 255", 0, (2, 5, 10, 20, 40), add_grain),
        Corruption("compression", "", "JPEG quality", 100, (90, 75, 50, 25, 10), compress_images),
        *(
            Corruption("geometry", "turned", "degrees", 0, (sign * 5, sign * 15, sign * 30), rotate_images)
            for sign in (1, -1)
        ),
        *(Corruption("geometry", "turned", "degrees", 0, (quarter,), rotate_images) for quarter in (90, 180, 270)),
        *(
            Corruption("geometry", f"moved {name}", "of the side", 0, (0.05, 0.1, 0.2), build_translation(*offset))
            for name, offset in directions.items()
        ),
        Corruption("geometry", "nearer", "times", 1, (1.15, 1.4, 2), zoom_images),
        Corruption("geometry", "farther", "times", 1, (0.85, 0.7, 0.5), zoom_images),
        Corruption("geometry", "mirrored", "times", 0, (1,), build_flip(3)),
        Corruption("geometry", "upside down", "times", 0, (1,), build_flip(2)),
    ]
