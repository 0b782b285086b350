"""Fit whole pictures of any shape into the square that a detector takes: scaled to fit, with grey beside or above."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from equipoise.errors import EquipoiseError
from equipoise.images.orientation import PILLOW_FORMATS, apply_exif_orientation
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS, convert_to_8_bit
from equipoise.type_aliases import FloatArray

FILL_COLOR = (124, 116, 104)  # mean colour of ImageNet: close to 0 after the normalization


@dataclass(frozen=True)
class Letterbox:
    """Where a picture lies in the square that it was fitted into."""

    scale_x: float
    """pixels of the square for each pixel of the picture"""
    scale_y: float
    left: int
    """first column of the picture in the square"""
    top: int

    def boxes_to_square(self, boxes: FloatArray) -> FloatArray:
        """Return boxes (..., 4) of x, y, width and height in pixels of the picture as boxes in the square."""
        scale, corner = self._scale_and_corner()
        return np.concatenate([boxes[..., :2] * scale + corner, boxes[..., 2:4] * scale], -1)

    def boxes_to_picture(self, boxes: FloatArray) -> FloatArray:
        """Return boxes (..., 4) of x, y, width and height in pixels of the square as boxes in the picture."""
        scale, corner = self._scale_and_corner()
        return np.concatenate([(boxes[..., :2] - corner) / scale, boxes[..., 2:4] / scale], -1)

    def _scale_and_corner(self) -> tuple[FloatArray, FloatArray]:
        return np.array([self.scale_x, self.scale_y]), np.array([self.left, self.top], np.float64)


def fit_letterbox(width: int, height: int, size: int) -> Letterbox:
    """Return where a picture of this width and height lies in a square of `size` pixels per side."""
    scale = size / max(width, height)
    new_width, new_height = (max(round(side * scale), 1) for side in (width, height))
    return Letterbox(new_width / width, new_height / height, (size - new_width) // 2, (size - new_height) // 2)


def letterbox_image(image: Image.Image, size: int) -> tuple[NDArray[np.uint8], Letterbox]:
    """Return an image, turned upright, as uint8 (3, size, size), and where it lies in it."""
    upright = convert_to_8_bit(apply_exif_orientation(image)).convert("RGB")
    box = fit_letterbox(upright.width, upright.height, size)
    scaled_size = round(upright.width * box.scale_x), round(upright.height * box.scale_y)
    if upright.size != scaled_size:
        upright = upright.resize(scaled_size, Image.Resampling.BILINEAR)
    square = upright
    if scaled_size != (size, size):
        square = Image.new("RGB", (size, size), FILL_COLOR)
        square.paste(upright, (box.left, box.top))
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1)), box


def load_letterboxed(source: Path | BinaryIO, size: int) -> tuple[NDArray[np.uint8], Letterbox]:
    """Load a photograph as uint8 (3, size, size), and where it lies in it."""
    with Image.open(source, formats=PILLOW_FORMATS) as image:
        if image.width * image.height > MAX_DECODED_PIXELS:
            raise EquipoiseError(
                "image-undecodable",
                f"it has {image.width}x{image.height} pixels, more than {MAX_DECODED_PIXELS}",
                "make it smaller",
            )
        return letterbox_image(image, size)
