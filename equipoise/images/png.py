"""Pictures as the bytes of a PNG, and through JPEG and back: without torch, for those who keep or send them."""

import io

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

PILLOW_ERRORS = (OSError, ValueError, SyntaxError, RuntimeError, Image.DecompressionBombError)
"""what Pillow raises on damage"""


def encode_png(picture: ArrayLike) -> bytes:
    """Return a uint8 picture (channels, height, width) as a PNG."""
    held = io.BytesIO()
    as_image(picture).save(held, "PNG")
    return held.getvalue()


def is_valid_png(png: bytes) -> bool:
    """Return whether a PNG can be decoded."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.load()
    except PILLOW_ERRORS:
        return False
    return True


def jpeg_round_trip(picture: ArrayLike, quality: int) -> NDArray[np.uint8]:
    """Return a uint8 picture (channels, height, width) as it is after JPEG compression."""
    held = io.BytesIO()
    image = as_image(picture)
    image.save(held, "JPEG", quality=quality)
    return np.array(Image.open(held)).reshape(image.height, image.width, -1).transpose(2, 0, 1)


def as_image(picture: ArrayLike) -> Image.Image:
    """Return Pillow's image of a uint8 picture (channels, height, width) of 1 or 3 channels."""
    values = np.ascontiguousarray(np.asarray(picture).transpose(1, 2, 0))
    return Image.fromarray(values if values.shape[2] == 3 else values[..., 0])
