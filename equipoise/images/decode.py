"""Photographs as the pixels that a model takes: the same for training, for a folder and for a request."""

from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

PILLOW_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
MAX_DECODED_PIXELS = 80_000_000  # of a photograph: 240 MB as it is decoded
EXIF_ORIENTATION_TAG = 0x0112  # of EXIF
EXIF_TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
PILLOW_MODES = {1: "L", 3: "RGB"}  # by channels


def load_image(source: Path | BinaryIO, shape: tuple[int, ...]) -> Tensor:
    """A photograph as a model takes it."""
    with Image.open(source, formats=PILLOW_FORMATS) as image:
        if image.width * image.height > MAX_DECODED_PIXELS:
            raise ValueError(f"{image.width}x{image.height} pixels are more than {MAX_DECODED_PIXELS}: make it smaller")
        return image_to_tensor(image, shape)


def image_to_tensor(image: Image.Image, shape: tuple[int, ...]) -> Tensor:
    """The middle of an image, upright as its EXIF says, as uint8 (channels, height, width)."""
    channels, height, width = shape
    whole = convert_to_8_bit(apply_exif_orientation(image)).convert(PILLOW_MODES[channels])
    values = np.array(ImageOps.fit(whole, (width, height), Image.Resampling.BILINEAR))
    return torch.from_numpy(values.reshape(height, width, channels)).permute(2, 0, 1)


def apply_exif_orientation(image: Image.Image) -> Image.Image:
    """The image as it was held; as it comes where what EXIF says of it makes no sense."""
    try:
        turn = EXIF_TRANSPOSES.get(image.getexif().get(EXIF_ORIENTATION_TAG, 1))
    except Exception:  # Pillow raises whatever it stumbles over in a damaged header
        turn = None
    return image if turn is None else image.transpose(turn)


def convert_to_8_bit(image: Image.Image) -> Image.Image:
    """A picture of 16 bits a pixel brought to 8; Pillow alone would cut off what is above 255."""
    if not image.mode.startswith(("I", "F")):
        return image
    values = np.asarray(image)
    if image.mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
        raise ValueError(f"a picture of mode {image.mode} has no known white: save it with 8 or 16 bits a pixel")
    return Image.fromarray((values >> 8).astype(np.uint8))
