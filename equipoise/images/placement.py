"""Photographs fitted into the square that a detector takes, and boxes found there put back into the photograph."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.images.letterbox import Letterbox, letterbox_image
from equipoise.images.orientation import LYING_ORIENTATIONS, PILLOW_FORMATS, read_exif_orientation
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS
from equipoise.images.png import PILLOW_ERRORS
from equipoise.type_aliases import FloatArray


@dataclass(frozen=True)
class ImagePlacement:
    """Where a photograph lies in the input of a detector."""

    width: int
    """width of the upright photograph in pixels"""
    height: int
    """height of the upright photograph in pixels"""
    letterbox: Letterbox
    """where it lies in the square that the model takes"""

    def to_photograph(self, boxes: FloatArray) -> FloatArray:
        """Return boxes (..., 4) of the input, as left, top, width and height, in pixels of the photograph.

        They are cut at its sides.
        """
        moved = self.letterbox.boxes_to_picture(boxes.astype(np.float64))
        limits = np.array([self.width, self.height], np.float64)
        near, far = moved[..., :2], moved[..., :2] + moved[..., 2:]
        near, far = (np.minimum(np.maximum(corner, 0), limits) for corner in (near, far))
        return np.concatenate([near, far - near], -1).astype(boxes.dtype)


def place_image(image: Image.Image, size: int) -> tuple[Tensor, ImagePlacement]:
    """Return an image, turned upright, as uint8 (3, size, size), and where the photograph lies in it."""
    pixels, letterbox = letterbox_image(image, size)  # which has read the EXIF too, wherever it is in the file
    width, height = image.size[::-1] if read_exif_orientation(image) in LYING_ORIENTATIONS else image.size
    return torch.from_numpy(pixels), ImagePlacement(width, height, letterbox)


def load_placed_image(source: Path | bytes, size: int) -> tuple[Tensor, ImagePlacement]:
    """Load a photograph, given as a path or as bytes, as uint8 (3, size, size), and say where it lies in that."""
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source, formats=PILLOW_FORMATS) as image:
            if image.width * image.height > MAX_DECODED_PIXELS:
                raise ValueError(f"it has more than {MAX_DECODED_PIXELS} pixels")
            return place_image(image, size)
    except PILLOW_ERRORS as error:
        name = "the image" if isinstance(source, bytes) else str(source)
        raise EquipoiseError(
            "image-undecodable", f"cannot read {name}: {error}", "give PNG, JPEG, WebP or another common format"
        ) from None
