"""Photographs fitted whole into the input of a detector, and boxes moved between the two."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.images.decode import PILLOW_MODES
from equipoise.images.orientation import PILLOW_FORMATS, apply_exif_orientation
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS, convert_to_8_bit
from equipoise.images.png import PILLOW_ERRORS

BORDER_LEVEL = 128  # of the pixels beside a photograph of another shape; in training and in service


@dataclass(frozen=True)
class ImagePlacement:
    """Where a photograph lies in the input of a model: in its middle, as large as it fits."""

    width: int
    """width of the upright photograph in pixels"""
    height: int
    """height of the upright photograph in pixels"""
    input_width: int
    """width of the input of the model in pixels"""
    input_height: int
    """height of the input of the model in pixels"""

    @property
    def scale(self) -> float:
        """Pixels of the input for one pixel of the photograph."""
        return min(self.input_width / self.width, self.input_height / self.height)

    @property
    def placed_size(self) -> tuple[int, int]:
        """Width and height of the photograph in the input, in whole pixels."""
        return max(1, round(self.width * self.scale)), max(1, round(self.height * self.scale))

    @property
    def corner(self) -> tuple[int, int]:
        """Left and top side of the photograph in the input, in whole pixels."""
        width, height = self.placed_size
        return (self.input_width - width) // 2, (self.input_height - height) // 2

    def to_input(self, boxes: Tensor) -> Tensor:
        """Return boxes (..., 4) of the photograph, as left, top, width and height, in pixels of the input."""
        width, height = self.placed_size
        factor = torch.tensor([width / self.width, height / self.height], dtype=boxes.dtype)
        corner = torch.tensor(self.corner, dtype=boxes.dtype)
        return torch.cat([boxes[..., :2] * factor + corner, boxes[..., 2:] * factor], -1)

    def to_photograph(self, boxes: Tensor) -> Tensor:
        """Return boxes (..., 4) of the input, as left, top, width and height, in pixels of the photograph.

        They are cut at its sides.
        """
        width, height = self.placed_size
        left, top = self.corner
        factor = torch.tensor([self.width / width, self.height / height], dtype=boxes.dtype)
        limits = torch.tensor([self.width, self.height], dtype=boxes.dtype)
        near = (boxes[..., :2] - torch.tensor([left, top], dtype=boxes.dtype)) * factor
        far = (near + boxes[..., 2:] * factor).clamp(min=0).minimum(limits)
        near = near.clamp(min=0).minimum(limits)
        return torch.cat([near, far - near], -1)


def place_image(image: Image.Image, shape: tuple[int, ...]) -> tuple[Tensor, ImagePlacement]:
    """Orient an image by its EXIF and fit it whole into uint8 of `shape` (channels, height, width).

    Return the input and where the photograph lies in it.
    """
    channels, height, width = shape
    upright = convert_to_8_bit(apply_exif_orientation(image)).convert(PILLOW_MODES[channels])
    placement = ImagePlacement(*upright.size, width, height)
    if upright.size != placement.placed_size:
        upright = upright.resize(placement.placed_size, Image.Resampling.BILINEAR)
    pixels = np.full((height, width, channels), BORDER_LEVEL, np.uint8)
    (left, top), (placed_width, placed_height) = placement.corner, placement.placed_size
    values = np.asarray(upright).reshape(placed_height, placed_width, channels)
    pixels[top : top + placed_height, left : left + placed_width] = values
    return torch.from_numpy(pixels).permute(2, 0, 1), placement


def load_placed_image(source: Path | bytes, shape: tuple[int, ...]) -> tuple[Tensor, ImagePlacement]:
    """Load a photograph, given as a path or as bytes, and fit it whole into uint8 (channels, height, width)."""
    file: Path | BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with Image.open(file, formats=PILLOW_FORMATS) as image:
            if image.width * image.height > MAX_DECODED_PIXELS:
                raise ValueError(f"it has more than {MAX_DECODED_PIXELS} pixels")
            return place_image(image, shape)
    except PILLOW_ERRORS as error:
        name = "the image" if isinstance(source, bytes) else str(source)
        raise EquipoiseError(
            "image-undecodable", f"cannot read {name}: {error}", "give PNG, JPEG, WebP or another common format"
        ) from None
