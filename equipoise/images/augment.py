"""Variations of training pictures: batched, on the device, drawn for the example and not by the process."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from equipoise.images.camera import (
    WHITE_BALANCE_KELVIN,
    add_veil,
    blackbody_gain,
    broadcast_per_image,
    gaussian_blur,
    gaussian_spot,
    linear_to_srgb8,
    sensor_noise,
    srgb8_to_linear,
)
from equipoise.images.color_jitter import apply_color_jitter
from equipoise.rng import example_uniforms

AUGMENT_DRAW_NAMES = (
    *("down", "right", "flip"),  # in this order since ever: what a key draws must not change
    *("area", "aspect", "crop_down", "crop_right"),
    *("brightness", "contrast", "saturation", "hue"),
    *("kelvin", "veil", "spot", "spot_down", "spot_right"),
    *("blur", "noise", "grain"),
    *(f"corner_{number}" for number in range(8)),
)
CROP_ASPECT_BOUNDS = (3 / 4, 4 / 3)  # of what a crop keeps, width over height
CHUNK_BYTES = 400_000  # bytes: as numbers they fit a processor's cache, and malloc keeps their memory
MAX_SHIFT_PIXELS, MAX_BLUR_PIXELS = 512, 64  # pixels
REFLECTION_SPOT_RADIUS = 0.35  # radius of a reflected highlight, of half a picture

UniformDraws = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Augment:
    """How far a picture may be changed without becoming another class."""

    shift: int = 0
    """pixels in any direction; what comes in from outside is black"""
    flip: bool = False
    """left to right, for half of the pictures"""
    crop: float = 1.0
    """least share of the area that a crop keeps, of an aspect from 3:4 to 4:3; it is enlarged to the picture"""
    distort: float = 0.0
    """how far each corner may move, as a share of the side: seen from another place"""
    brightness: float = 0.0
    """0.5: a factor from 0.5 to 1.5"""
    contrast: float = 0.0
    """the same, about the mean grey"""
    saturation: float = 0.0
    """the same, about each pixel's grey"""
    hue: float = 0.0
    """turns of the colour circle to either side, 0.5 at most"""
    kelvin: tuple[float, float] | None = None
    """colour temperatures of the light, for a camera balanced for 6500"""
    reflection: float = 0.0
    """largest share of reflected light over the picture, and of full exposure in a spot off its centre"""
    blur: float = 0.0
    """largest standard deviation of defocus, in pixels"""
    noise: float = 0.0
    """largest standard deviation of the sensor's noise, of 255"""

    def __post_init__(self) -> None:
        for name in ("shift", "distort", "brightness", "contrast", "saturation", "hue", "reflection", "blur", "noise"):
            most = {"hue": 0.5, "distort": 0.5, "shift": MAX_SHIFT_PIXELS, "blur": MAX_BLUR_PIXELS}.get(name, 1)
            if not 0 <= getattr(self, name) <= most:
                raise ValueError(f"Augment.{name} must be from 0 to {most:g}, got {getattr(self, name)}")
        if type(self.shift) is not int:
            raise ValueError(f"Augment.shift must be a whole number of pixels, got {self.shift}")
        if not 0 < self.crop <= 1:
            raise ValueError(f"Augment.crop must be above 0 and at most 1, got {self.crop}")
        pair = isinstance(self.kelvin, tuple | list) and len(self.kelvin) == 2
        if self.kelvin and not (pair and 1500 <= self.kelvin[0] <= self.kelvin[1] <= 25000):
            raise ValueError(f"Augment.kelvin must be two temperatures from 1500 to 25000, got {self.kelvin}")

    def __call__(self, images: Tensor, seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64]) -> Tensor:
        """`images`, uint8 (n, channels, height, width), each changed as its example's key says in its epoch."""
        few = max(CHUNK_BYTES // max(images[:1].numel(), 1), 1) if images.device.type == "cpu" else len(images)
        if len(images) <= few:
            return self._augment_chunk(images, seed, epochs, examples)
        parts = [slice(start, start + few) for start in range(0, len(images), few)]
        return torch.cat([self._augment_chunk(images[part], seed, epochs[part], examples[part]) for part in parts])

    def _augment_chunk(
        self, images: Tensor, seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64]
    ) -> Tensor:
        """The same of a few pictures, on the way through a processor's cache."""
        table = example_uniforms(seed, epochs, examples, len(AUGMENT_DRAW_NAMES))
        drawn = dict(zip(AUGMENT_DRAW_NAMES, table.T, strict=True))
        if self.shift:
            places = np.stack([drawn["down"], drawn["right"]], 1) * (2 * self.shift + 1)
            images = shift_images(images, places.astype(np.int64), self.shift)
        if self.crop < 1 or self.distort:
            images = warp_images(images, self._view_matrices(drawn))
        elif self.flip:
            flips = torch.from_numpy(drawn["flip"] < 0.5).to(images.device)
            images = images.index_put((flips,), images[flips].flip(-1))
        if self.kelvin or self.reflection:
            images = self._relight(images, drawn)
        return self._recolor_and_blur(images, drawn)

    def _view_matrices(self, draws: UniformDraws) -> NDArray[np.float64]:
        """Where each point of the result is found in the picture: a 3x3 matrix a picture."""
        count = len(draws["flip"])
        view = crop_matrices(draws, self.crop) if self.crop < 1 else np.tile(np.eye(3), (count, 1, 1))
        if self.flip:
            view[draws["flip"] < 0.5, 0] *= -1
        if not self.distort:
            return view
        corners = np.stack([draws[f"corner_{number}"] for number in range(8)], 1).reshape(count, 4, 2)
        return view @ homography_matrices(2 * self.distort * (2 * corners - 1))

    def _relight(self, images: Tensor, draws: UniformDraws) -> Tensor:
        """Under another light."""
        if images.shape[1] != 3:
            raise ValueError(
                f"light has three colours, the pictures {images.shape[1]} channel: leave kelvin and reflection"
            )
        low, high = self.kelvin or (WHITE_BALANCE_KELVIN, WHITE_BALANCE_KELVIN)
        kelvin = 1e6 / (1e6 / high + draws["kelvin"] * (1e6 / low - 1e6 / high))  # equal steps of 1/kelvin look equal
        linear = srgb8_to_linear(images)
        lamp = broadcast_per_image(blackbody_gain(kelvin), linear)
        linear = linear * lamp
        if self.reflection:
            linear = add_veil(linear, broadcast_per_image(self.reflection * draws["veil"], linear), lamp)
            centre = 2 * np.stack([draws["spot_down"], draws["spot_right"]], 1) - 1
            spot = gaussian_spot(images.shape[2], images.shape[3], centre, REFLECTION_SPOT_RADIUS).to(linear)
            linear = linear + broadcast_per_image(self.reflection * draws["spot"], linear) * lamp * spot
        return linear_to_srgb8(linear)

    def _recolor_and_blur(self, images: Tensor, draws: UniformDraws) -> Tensor:
        """Through another camera: colours, focus and noise."""
        factor = {name: 1 + getattr(self, name) * (2 * draws[name] - 1) for name in ("brightness", "contrast")}
        wide = {name: 2 * getattr(self, name) * (draws[name] - 0.5) for name in ("saturation", "hue")}
        jitter = self.brightness or self.contrast or self.saturation or self.hue
        if not (jitter or self.blur or self.noise):
            return images
        values = images.float()
        if jitter:
            values = apply_color_jitter(
                values, factor["brightness"], factor["contrast"], 1 + wide["saturation"], wide["hue"]
            ).clamp(0, 255)
        if self.blur:
            values = gaussian_blur(values, self.blur * draws["blur"], self.blur)
        if self.noise:
            values = values + broadcast_per_image(255 * self.noise * draws["noise"], values) * sensor_noise(
                draws["grain"], values
            )
        return to_uint8(values)


def to_uint8(values: Tensor) -> Tensor:
    """0 to 255 as eight bits."""
    return values.round_().clamp_(0, 255).to(torch.uint8)


def shift_images(images: Tensor, corners: NDArray[np.int64], max_shift: int) -> Tensor:
    """Each picture cut from itself framed by `most` black pixels, at its own corner (row, column)."""
    height, width = images.shape[-2:]
    framed = F.pad(images, (max_shift, max_shift, max_shift, max_shift))
    windows = framed.unfold(2, height, 1).unfold(3, width, 1)  # n, c, row, column, height, width: a view
    row, column = torch.from_numpy(corners).to(images.device).unbind(1)
    return windows[torch.arange(len(images), device=images.device), :, row, column]


def crop_matrices(draws: UniformDraws, min_area: float) -> NDArray[np.float64]:
    """Views of a part of each picture: its area at least that share, its aspect and place drawn."""
    area = min_area + (1 - min_area) * draws["area"]
    aspect = np.exp(np.interp(draws["aspect"], [0, 1], np.log(CROP_ASPECT_BOUNDS)))
    wide, high = np.minimum(np.sqrt(area * aspect), 1), np.minimum(np.sqrt(area / aspect), 1)
    view = np.tile(np.eye(3), (len(area), 1, 1))
    view[:, 0, 0], view[:, 0, 2] = wide, (1 - wide) * (2 * draws["crop_right"] - 1)
    view[:, 1, 1], view[:, 1, 2] = high, (1 - high) * (2 * draws["crop_down"] - 1)
    return view


def homography_matrices(corner_offsets: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 3x3 matrices that move the corners (-1, -1), (1, -1), (1, 1), (-1, 1) by `moves` (n, 4, 2)."""
    corners = np.array([[-1.0, -1], [1, -1], [1, 1], [-1, 1]])
    count = len(corner_offsets)
    x, y = np.broadcast_to(corners, (count, 4, 2)).transpose(2, 0, 1)
    u, v = (corners + corner_offsets).transpose(2, 0, 1)
    zero, one = np.zeros_like(x), np.ones_like(x)
    rows = np.concatenate(
        [
            np.stack([x, y, one, zero, zero, zero, -x * u, -y * u], -1),
            np.stack([zero, zero, zero, x, y, one, -x * v, -y * v], -1),
        ],
        1,
    )
    found = np.linalg.solve(rows, np.concatenate([u, v], 1)[..., None])[..., 0]
    return np.concatenate([found, np.ones((count, 1))], 1).reshape(count, 3, 3)


def warp_images(images: Tensor, view_matrices: NDArray[np.float64]) -> Tensor:
    """Each picture as its view finds it; what comes in from outside is black."""
    height, width = images.shape[2:]
    rows, columns = (torch.arange(side, device=images.device) * (2 / side) + (1 / side - 1) for side in (height, width))
    view = torch.from_numpy(view_matrices).to(images.device, torch.float32)[:, :, :, None, None]
    found = images.new_empty(len(images), height, width, 2, dtype=torch.float32)
    for side in range(2):
        torch.add(view[:, side, 0] * columns + view[:, side, 2], view[:, side, 1] * rows[:, None], out=found[..., side])
    if (view_matrices[:, 2] != (0, 0, 1)).any():  # lines that were parallel meet
        found /= (view[:, 2, 0] * columns + view[:, 2, 1] * rows[:, None] + view[:, 2, 2])[..., None]
    values = F.grid_sample(images.float(), found, align_corners=False)
    return values.add_(0.5).to(torch.uint8)  # means of bytes: there is nothing to clamp
