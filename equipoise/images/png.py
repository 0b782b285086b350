"""Encode images as PNG, check PNGs and apply JPEG compression, without importing torch."""

import io

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

PILLOW_ERRORS = (OSError, ValueError, SyntaxError, RuntimeError, Image.DecompressionBombError)
"""exceptions that Pillow raises for damaged images; ValueError includes what `decode` refuses, an EquipoiseError"""


def encode_png(picture: ArrayLike) -> bytes:
    """Return a uint8 image (channels, height, width) as PNG bytes."""
    buffer = io.BytesIO()
    as_image(picture).save(buffer, "PNG")
    return buffer.getvalue()


def is_valid_png(png: bytes) -> bool:
    """Return whether a PNG can be decoded."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.load()
    except PILLOW_ERRORS:
        return False
    return True


def jpeg_round_trip(picture: ArrayLike, quality: int) -> NDArray[np.uint8]:
    """Return a uint8 image (channels, height, width) after JPEG compression of a quality from 1 to 100."""
    buffer = io.BytesIO()
    image = as_image(picture)
    image.save(buffer, "JPEG", quality=quality)
    return np.array(Image.open(buffer)).reshape(image.height, image.width, -1).transpose(2, 0, 1)


def as_image(picture: ArrayLike) -> Image.Image:
    """Return a uint8 image (channels, height, width) of 1 or 3 channels as a Pillow image."""
    values = np.ascontiguousarray(np.asarray(picture).transpose(1, 2, 0))
    return Image.fromarray(values if values.shape[2] == 3 else values[..., 0])
