"""What can happen to a camera and its light, in physical units, as it would change the pictures of a reference.

Each kind of change is tried at several sizes, so that later a window of requests can be told by which change, and how
much of it, it would have come about.
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
    gaussian_blur,
    gaussian_spot,
    linear_to_srgb8,
    sensor_noise,
    srgb8_to_linear,
)
from equipoise.images.png import jpeg_round_trip

CAUSE_NAMES = (
    *("colour temperature", "tint", "exposure", "contrast", "reflection", "blur", "noise", "compression", "geometry"),
    *("label shift", "new class", "features"),
)
"""all that a verdict may name; the last is what no chart names"""
HIGHLIGHT_RADIUS = 0.35  # radius of a highlight, of half a picture
HIGHLIGHT_OFFSETS = (-0.6, 0.0, 0.6)  # of a highlight's middle, down and to the right

ImageTransform = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class Corruption:
    """One way in which pictures may change, and the sizes at which it is tried."""

    cause: str
    detail: str
    unit: str
    neutral_size: float
    """the size at which nothing changes"""
    sizes: tuple[float, ...]
    apply: ImageTransform
    requires_color: bool = False
    """whether it takes pictures with colours"""


def apply_color_temperature(pictures: Tensor, kelvin: float) -> Tensor:
    """Under light of another colour temperature; the camera stays balanced for 6500 K."""
    linear = srgb8_to_linear(pictures)
    return linear_to_srgb8(linear * broadcast_per_image(blackbody_gain(np.full(len(linear), kelvin)), linear))


def shift_white_balance(pictures: Tensor, kelvin: float) -> Tensor:
    """Under such light by red and blue alone: a camera balanced for another, green as it was."""
    red, _, blue = blackbody_gain(np.array([kelvin]))[0]
    gain = torch.tensor([(red / blue) ** 0.5, 1, (blue / red) ** 0.5], dtype=torch.float32).view(1, 3, 1, 1)
    return linear_to_srgb8(srgb8_to_linear(pictures) * gain)


def shift_tint(pictures: Tensor, stops: float) -> Tensor:
    """Under light with more green, or less."""
    gain = torch.tensor([1, 2**stops, 1]).view(1, 3, 1, 1)
    return linear_to_srgb8(srgb8_to_linear(pictures) * gain)


def adjust_exposure(pictures: Tensor, stops: float) -> Tensor:
    """With more light, or less."""
    return linear_to_srgb8(srgb8_to_linear(pictures) * 2**stops)


def adjust_contrast(pictures: Tensor, factor: float) -> Tensor:
    """With each value moved from the picture's mean grey."""
    values = pictures.float()
    mean = values.mean((1, 2, 3), keepdim=True)
    return to_uint8(mean + factor * (values - mean))


def add_veiling_glare(pictures: Tensor, share: float) -> Tensor:
    """With light reflected all over."""
    linear = srgb8_to_linear(pictures)
    return linear_to_srgb8(add_veil(linear, torch.tensor(share), torch.tensor(1.0)))


def build_highlight(down: float, right: float) -> ImageTransform:
    """With a lamp reflected at a place."""

    def change(pictures: Tensor, brightness: float) -> Tensor:
        linear = srgb8_to_linear(pictures)
        centre = np.tile([down, right], (len(linear), 1))
        return linear_to_srgb8(
            linear + brightness * gaussian_spot(linear.shape[2], linear.shape[3], centre, HIGHLIGHT_RADIUS).to(linear)
        )

    return change


def blur_images(pictures: Tensor, sigma: float) -> Tensor:
    """Out of focus."""
    linear = srgb8_to_linear(pictures)
    return linear_to_srgb8(gaussian_blur(linear, np.full(len(linear), sigma), sigma))


def add_grain(pictures: Tensor, levels: float) -> Tensor:
    """With grain of some levels of 255."""
    values = pictures.float()
    return to_uint8(values + levels * sensor_noise(np.linspace(0, 1, len(values)), values))


def compress_images(pictures: Tensor, quality: float) -> Tensor:
    """Through JPEG and back."""
    return torch.stack([torch.from_numpy(jpeg_round_trip(one, round(quality))) for one in pictures])


def rotate_images(pictures: Tensor, degrees: float) -> Tensor:
    """Turned about the middle; by quarters exactly."""
    if degrees % 90 == 0:
        return torch.rot90(pictures, int(degrees // 90), (2, 3)).contiguous()
    angle = np.deg2rad(degrees)
    return warp_images(
        pictures, repeat_affine_matrix(len(pictures), [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    )


def desaturate_images(pictures: Tensor, share: float) -> Tensor:
    """With each colour moved to its grey; below 0, away from it."""
    values = pictures.float()
    return to_uint8(torch.lerp(values, values.mean(1, keepdim=True), share))


def swap_red_blue(pictures: Tensor, _: float) -> Tensor:
    """With red for blue and blue for red: a client that sends BGR."""
    return pictures.flip(1)


def build_translation(down: float, right: float) -> ImageTransform:
    """Shifted by a share of the side; what comes in repeats the edge."""

    def change(pictures: Tensor, share: float) -> Tensor:
        steps = [round(share * way * side) for way, side in zip((down, right), pictures.shape[2:], strict=True)]
        pad = [max(steps[1], 0), max(-steps[1], 0), max(steps[0], 0), max(-steps[0], 0)]
        height, width = pictures.shape[2:]
        framed = F.pad(pictures.float(), pad, mode="replicate").to(torch.uint8)
        return framed[:, :, max(-steps[0], 0) :, max(-steps[1], 0) :][:, :, :height, :width]

    return change


def zoom_images(pictures: Tensor, factor: float) -> Tensor:
    """Seen from nearer (above 1), or from farther off, with black around."""
    return warp_images(pictures, repeat_affine_matrix(len(pictures), np.eye(2) / factor))


def build_flip(axis: int) -> ImageTransform:
    """Left to right, or upside down."""
    return lambda pictures, _: pictures.flip(axis)


def invert_corruption(pictures: Tensor, cause: str, detail: str, value: float) -> Tensor | None:
    """Pictures as they would be without a cause of such a size; None where what is lost cannot be brought back."""
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
    """A 2x2 matrix as the views that pictures are seen by."""
    whole_view = np.eye(3)
    whole_view[:2, :2] = matrix
    return np.tile(whole_view, (count, 1, 1))


def all_corruptions() -> list[Corruption]:
    """Everything that is tried."""
    ways = {"down": (1, 0), "up": (-1, 0), "right": (0, 1), "left": (0, -1)}
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
            Corruption("geometry", "turned", "degrees", 0, (way * 5, way * 15, way * 30), rotate_images)
            for way in (1, -1)
        ),
        *(Corruption("geometry", "turned", "degrees", 0, (quarter,), rotate_images) for quarter in (90, 180, 270)),
        *(
            Corruption("geometry", f"moved {way}", "of the side", 0, (0.05, 0.1, 0.2), build_translation(*to))
            for way, to in ways.items()
        ),
        Corruption("geometry", "nearer", "times", 1, (1.15, 1.4, 2), zoom_images),
        Corruption("geometry", "farther", "times", 1, (0.85, 0.7, 0.5), zoom_images),
        Corruption("geometry", "mirrored", "times", 0, (1,), build_flip(3)),
        Corruption("geometry", "upside down", "times", 0, (1,), build_flip(2)),
    ]


HIGHLIGHT_BRIGHTNESSES = (0.2, 0.8)
