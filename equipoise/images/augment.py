"""Augmentation of training images: batched, on the device, with random draws keyed by example, not by process.

Why by hand: docs/decisions/0002-keyed-augmentation.md.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from equipoise.errors import EquipoiseError
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
    *("down", "right", "flip"),  # append only: the draws of a key must not change
    *("area", "aspect", "crop_down", "crop_right"),
    *("brightness", "contrast", "saturation", "hue"),
    *("kelvin", "veil", "spot", "spot_down", "spot_right"),
    *("blur", "noise", "grain"),
    *(f"corner_{number}" for number in range(8)),
)
CROP_ASPECT_BOUNDS = (3 / 4, 4 / 3)  # width over height of the area that a crop keeps
CHUNK_BYTES = 400_000  # as float32 a chunk fits a processor's cache, and malloc reuses its memory
MIN_SLICED_NUMEL = 4096  # of an image, from which a slice for each costs less than one indexing of all
MAX_SHIFT_PIXELS, MAX_BLUR_PIXELS = 512, 64

UniformDraws = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class Augment:
    """Ranges of the random changes that keep the class of an image."""

    shift: int = 0
    """largest shift in any direction, in pixels; uncovered pixels are black"""
    flip: bool = False
    """mirror half of the images left to right"""
    crop: float = 1.0
    """smallest fraction of the area that a crop keeps (1: no crop), of aspect 3:4 to 4:3, scaled to the full size"""
    distort: float = 0.0
    """largest shift of each corner, as a fraction of the side: a change of perspective"""
    brightness: float = 0.0
    """largest relative change of brightness; 0.5 draws a factor from 0.5 to 1.5"""
    contrast: float = 0.0
    """largest relative change of contrast about the mean grey of the image; 0.5 draws a factor from 0.5 to 1.5"""
    saturation: float = 0.0
    """largest relative change of saturation about the grey of each pixel; 0.5 draws a factor from 0.5 to 1.5"""
    hue: float = 0.0
    """largest rotation of hue in either direction, in turns of the colour circle, at most 0.5"""
    kelvin: tuple[float, float] | None = None
    """lowest and highest colour temperature of the light in kelvin, for a camera balanced for 6500"""
    reflection: float = 0.0
    """largest fraction of reflected light over the image, and brightness of a reflected spot in full exposures"""
    blur: float = 0.0
    """largest standard deviation of the Gaussian blur, in pixels"""
    noise: float = 0.0
    """largest standard deviation of the sensor noise, as a fraction of 255"""

    def __post_init__(self) -> None:
        for name in ("shift", "distort", "brightness", "contrast", "saturation", "hue", "reflection", "blur", "noise"):
            limit = {"hue": 0.5, "distort": 0.5, "shift": MAX_SHIFT_PIXELS, "blur": MAX_BLUR_PIXELS}.get(name, 1)
            if not 0 <= getattr(self, name) <= limit:
                raise EquipoiseError(
                    "augment-invalid", f"Augment.{name} must be from 0 to {limit:g}, got {getattr(self, name)}"
                )
        if type(self.shift) is not int:
            raise EquipoiseError("augment-invalid", f"Augment.shift must be a whole number of pixels, got {self.shift}")
        if not 0 < self.crop <= 1:
            raise EquipoiseError("augment-invalid", f"Augment.crop must be above 0 and at most 1, got {self.crop}")
        is_pair = isinstance(self.kelvin, tuple | list) and len(self.kelvin) == 2
        if self.kelvin and not (is_pair and 1500 <= self.kelvin[0] <= self.kelvin[1] <= 25000):
            raise EquipoiseError(
                "augment-invalid", f"Augment.kelvin must be two temperatures from 1500 to 25000, got {self.kelvin}"
            )

    def __call__(
        self, images: Tensor, labels: Tensor, seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Augment the images of a batch, and leave the labels as they are."""
        return self.augment_images(images, seed, epochs, examples), labels

    def augment_images(
        self, images: Tensor, seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64]
    ) -> Tensor:
        """Augment uint8 images (n, channels, height, width), each by the draws of its example in its epoch."""
        return self.apply_draws(images, draw_uniforms(seed, epochs, examples))

    def apply_draws(self, images: Tensor, draws: UniformDraws) -> Tensor:
        """Augment uint8 images (n, channels, height, width) by draws from `draw_uniforms`."""
        chunk = max(CHUNK_BYTES // max(images[:1].numel(), 1), 1) if images.device.type == "cpu" else len(images)
        if len(images) <= chunk:
            return self._augment_chunk(images, draws)
        parts = [slice(start, start + chunk) for start in range(0, len(images), chunk)]
        draws_by_part = ({name: values[part] for name, values in draws.items()} for part in parts)
        chunks = zip(parts, draws_by_part, strict=True)
        return torch.cat([self._augment_chunk(images[part], part_draws) for part, part_draws in chunks])

    def _augment_chunk(self, images: Tensor, draws: UniformDraws) -> Tensor:
        """Augment a chunk of images small enough for a processor's cache."""
        if self.shift:
            images = shift_images(images, self._shift_corners(draws), self.shift)
        if self.crop < 1 or self.distort:
            images = warp_images(images, self._view_matrices(draws))
        elif self.flip:
            flips = torch.from_numpy(draws["flip"] < 0.5).to(images.device)
            images = torch.where(flips.view(-1, 1, 1, 1), images.flip(-1), images)  # no indexing, which costs more
        if self.kelvin or self.reflection:
            images = self._relight(images, draws)
        return self._recolor_and_blur(images, draws)

    def pixel_matrices(self, draws: UniformDraws, size: tuple[int, int]) -> NDArray[np.float64]:
        """Return a 3x3 matrix per image that maps pixels (x, y, 1) of the result to those of the original.

        Pixels are counted from the upper left corner of an image of this size (width, height), with fractions.
        """
        width, height = size
        to_unit = np.array([[2 / width, 0, -1], [0, 2 / height, -1], [0, 0, 1]])
        matrices = np.linalg.inv(to_unit) @ self._view_matrices(draws) @ to_unit
        if self.shift:
            matrices[:, :2] += (self._shift_corners(draws)[:, ::-1] - self.shift)[:, :, None] * matrices[:, 2:]
        return np.asarray(matrices)

    def _shift_corners(self, draws: UniformDraws) -> NDArray[np.int64]:
        """Return row and column at which each padded image is cut."""
        return (np.stack([draws["down"], draws["right"]], 1) * (2 * self.shift + 1)).astype(np.int64)

    def _view_matrices(self, draws: UniformDraws) -> NDArray[np.float64]:
        """Return a 3x3 matrix per image that maps each point of the result to its point in the original."""
        count = len(draws["flip"])
        view = crop_matrices(draws, self.crop) if self.crop < 1 else np.tile(np.eye(3), (count, 1, 1))
        if self.flip:
            view[draws["flip"] < 0.5, 0] *= -1
        if not self.distort:
            return view
        corners = np.stack([draws[f"corner_{number}"] for number in range(8)], 1).reshape(count, 4, 2)
        return view @ homography_matrices(2 * self.distort * (2 * corners - 1))

    def _relight(self, images: Tensor, draws: UniformDraws) -> Tensor:
        """Relight images with the drawn colour temperature and reflections."""
        if images.shape[1] != 3:
            raise EquipoiseError(
                "augment-invalid",
                f"cannot relight images of {images.shape[1]} channels: kelvin and reflection need 3",
                "leave both out",
            )
        low, high = self.kelvin or (WHITE_BALANCE_KELVIN, WHITE_BALANCE_KELVIN)
        kelvin = 1e6 / (1e6 / high + draws["kelvin"] * (1e6 / low - 1e6 / high))  # equal steps of 1/kelvin look equal
        linear = srgb8_to_linear(images)
        lamp = broadcast_per_image(blackbody_gain(kelvin), linear)
        linear = linear * lamp
        if self.reflection:
            linear = add_veil(linear, broadcast_per_image(self.reflection * draws["veil"], linear), lamp)
            centre = 2 * np.stack([draws["spot_down"], draws["spot_right"]], 1) - 1
            spot = gaussian_spot(images.shape[2], images.shape[3], centre).to(linear)
            linear = linear + broadcast_per_image(self.reflection * draws["spot"], linear) * lamp * spot
        return linear_to_srgb8(linear)

    def _recolor_and_blur(self, images: Tensor, draws: UniformDraws) -> Tensor:
        """Apply colour jitter, defocus blur and sensor noise."""
        factors = {name: 1 + getattr(self, name) * (2 * draws[name] - 1) for name in ("brightness", "contrast")}
        deviations = {name: 2 * getattr(self, name) * (draws[name] - 0.5) for name in ("saturation", "hue")}
        jitter = self.brightness or self.contrast or self.saturation or self.hue
        if not (jitter or self.blur or self.noise):
            return images
        values = images.float()
        if jitter:
            values = apply_color_jitter(
                values,
                factors["brightness"],
                factors["contrast"],
                1 + deviations["saturation"],
                deviations["hue"],
            ).clamp(0, 255)
        if self.blur:
            values = gaussian_blur(values, self.blur * draws["blur"], self.blur)
        if self.noise:
            values = values + broadcast_per_image(255 * self.noise * draws["noise"], values) * sensor_noise(
                draws["grain"], values
            )
        return to_uint8(values)


def draw_uniforms(seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64]) -> UniformDraws:
    """Return the draws of each example in its epoch, by name."""
    table = example_uniforms(seed, epochs, examples, len(AUGMENT_DRAW_NAMES))
    return dict(zip(AUGMENT_DRAW_NAMES, table.T, strict=True))


def to_uint8(values: Tensor) -> Tensor:
    """Round values from 0 to 255 to uint8, in place, clamping what lies outside."""
    return values.round_().clamp_(0, 255).to(torch.uint8)


def shift_images(images: Tensor, corners: NDArray[np.int64], max_shift: int) -> Tensor:
    """Pad images by `max_shift` black pixels and cut each at its own corner (row, column)."""
    height, width = images.shape[-2:]
    padded = F.pad(images, (max_shift, max_shift, max_shift, max_shift))
    if images[:1].numel() >= MIN_SLICED_NUMEL:
        sliced = zip(padded, corners.tolist(), strict=True)
        return torch.stack([image[:, row : row + height, column : column + width] for image, (row, column) in sliced])
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # n, c, row, column, height, width: a view
    row, column = torch.from_numpy(corners).to(images.device).unbind(1)
    return windows[torch.arange(len(images), device=images.device), :, row, column]


def crop_matrices(draws: UniformDraws, min_area: float) -> NDArray[np.float64]:
    """Return 3x3 matrices of random crops that keep at least the fraction `min_area` of the area."""
    area = min_area + (1 - min_area) * draws["area"]
    aspect = np.exp(np.interp(draws["aspect"], [0, 1], np.log(CROP_ASPECT_BOUNDS)))
    width, height = np.minimum(np.sqrt(area * aspect), 1), np.minimum(np.sqrt(area / aspect), 1)
    view = np.tile(np.eye(3), (len(area), 1, 1))
    view[:, 0, 0], view[:, 0, 2] = width, (1 - width) * (2 * draws["crop_right"] - 1)
    view[:, 1, 1], view[:, 1, 2] = height, (1 - height) * (2 * draws["crop_down"] - 1)
    return view


def homography_matrices(corner_offsets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the 3x3 matrices that move the corners (-1, -1), (1, -1), (1, 1), (-1, 1) by their offsets (n, 4, 2)."""
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
    coefficients = np.linalg.solve(rows, np.concatenate([u, v], 1)[..., None])[..., 0]
    return np.concatenate([coefficients, np.ones((count, 1))], 1).reshape(count, 3, 3)


def warp_images(images: Tensor, view_matrices: NDArray[np.float64]) -> Tensor:
    """Warp each image by its view matrix; points outside of the original are black."""
    height, width = images.shape[2:]
    rows, columns = (torch.arange(side, device=images.device) * (2 / side) + (1 / side - 1) for side in (height, width))
    view = torch.from_numpy(view_matrices).to(images.device, torch.float32)[:, :, :, None, None]
    grid = images.new_empty(len(images), height, width, 2, dtype=torch.float32)
    for side in range(2):
        torch.add(view[:, side, 0] * columns + view[:, side, 2], view[:, side, 1] * rows[:, None], out=grid[..., side])
    if (view_matrices[:, 2] != (0, 0, 1)).any():  # projective: divide by the third coordinate
        grid /= (view[:, 2, 0] * columns + view[:, 2, 1] * rows[:, None] + view[:, 2, 2])[..., None]
    values = F.grid_sample(images.float(), grid, align_corners=False)
    return values.add_(0.5).to(torch.uint8)  # weighted means of bytes stay within 0 to 255: no clamp needed
