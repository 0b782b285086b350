"""Decode images from untrusted clients, after a check of the size that their headers declare."""

import io
import warnings
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from equipoise.formatting import first_error_line
from equipoise.images.decode import image_to_array
from equipoise.images.pixel_depth import MAX_DECODED_PIXELS
from equipoise.images.placement import ImagePlacement, place_image
from equipoise.images.png import PILLOW_ERRORS, parse_plain_png
from services.http.errors import RequestRejected, picture_is_too_large

ACCEPTED_FORMATS = ("PNG", "JPEG", "WEBP")
Converted = TypeVar("Converted")
MAX_REASON_CHARACTERS = 120  # of an error message of Pillow
warnings.simplefilter("error", Image.DecompressionBombWarning)  # Pillow's own limit is larger than any of ours


def decode_image(data: bytes, shape: tuple[int, ...], max_pixels: int) -> NDArray[np.uint8]:
    """Decode an image to the pixels that a classifier takes: uint8 (channels, height, width), its middle."""
    return convert_image(data, max_pixels, lambda image: image_to_array(image, shape))


def decode_placed_image(data: bytes, size: int, max_pixels: int) -> tuple[Tensor, ImagePlacement]:
    """Decode an image, all of it, to the square that a detector takes, and say where it lies in that."""
    return convert_image(data, max_pixels, lambda image: place_image(image, size))


def convert_image(data: bytes, max_pixels: int, convert: Callable[[Image.Image], Converted]) -> Converted:
    """Open an image and convert it; reject what is no image, or one of too many pixels."""
    if (plain_image := decode_plain_png(data, max_pixels)) is not None:
        return convert(plain_image)
    try:
        with Image.open(io.BytesIO(data), formats=ACCEPTED_FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise picture_is_too_large(max_pixels, f"it has {image.width}x{image.height}")
            return convert(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise picture_is_too_large(max_pixels, first_error_line(error)[:MAX_REASON_CHARACTERS]) from None
    except UnidentifiedImageError:
        raise RequestRejected(
            400, f"the data is not an image in one of the formats {', '.join(ACCEPTED_FORMATS)}"
        ) from None
    except (*PILLOW_ERRORS, KeyError, IndexError, AttributeError, TypeError) as error:
        # Pillow lets all these through where a file contradicts its own header
        why = first_error_line(error)[:MAX_REASON_CHARACTERS]
        raise RequestRejected(400, f"the image cannot be read as {', '.join(ACCEPTED_FORMATS)} ({why})") from None


def decode_plain_png(data: bytes, max_pixels: int) -> Image.Image | None:
    """Decode a plain PNG in less time than Pillow opens one in; None for other data, or if it cannot be accepted."""
    png = parse_plain_png(data)
    if png is None or png.width * png.height > min(max_pixels, MAX_DECODED_PIXELS):
        return None
    try:
        return png.decode()
    except PILLOW_ERRORS:
        return None
