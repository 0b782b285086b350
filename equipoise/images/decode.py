"""Decode photographs to the pixels that a model takes: the same in training, for folders and for requests."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from equipoise.errors import EquipoiseError
from equipoise.images.orientation import PILLOW_FORMATS, apply_exif_orientation
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS, convert_to_8_bit
from equipoise.images.png import PILLOW_MODES


def load_image(source: Path | BinaryIO, shape: tuple[int, ...]) -> Tensor:
    """Load a photograph as a uint8 tensor of `shape` (channels, height, width)."""
    with Image.open(source, formats=PILLOW_FORMATS) as image:
        if image.width * image.height > MAX_DECODED_PIXELS:
            raise EquipoiseError(
                "image-undecodable",
                f"it has {image.width}x{image.height} pixels, more than {MAX_DECODED_PIXELS}",
                "make it smaller",
            )
        return torch.from_numpy(image_to_array(image, shape))


def image_to_array(image: Image.Image, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Orient an image by its EXIF, crop its centre and resize it to uint8 of `shape` (channels, height, width)."""
    channels, height, width = shape
    converted = convert_to_8_bit(apply_exif_orientation(image))
    if converted.mode != PILLOW_MODES[channels]:  # otherwise Pillow would copy it
        converted = converted.convert(PILLOW_MODES[channels])
    if converted.size != (width, height):
        converted = ImageOps.fit(converted, (width, height), Image.Resampling.BILINEAR)
    pixels = np.asarray(converted).reshape(height, width, channels).transpose(2, 0, 1)
    return pixels.copy("C")  # all engines take as long or longer over images with their channels last
