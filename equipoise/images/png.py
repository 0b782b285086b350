"""Encode images as PNG, check PNGs and apply JPEG compression, without importing torch."""

import io
import struct

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_CHUNK_BYTES = 12  # of a chunk beside its data: length, kind and checksum
PNG_HEADER_BYTES = 13  # of data in the first chunk
PNG_COLOUR_TYPES = {1: 0, 3: 2}  # grey and RGB, by number of channels
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


def is_plain_png(data: bytes, shape: tuple[int, ...]) -> bool:
    """Return whether data is a PNG of 8-bit pixels of `shape` (channels, height, width) without any other chunk.

    Its pixels need no conversion, and it says nothing about where, when or by whom the photograph was taken.
    """
    channels, height, width = shape
    if not data.startswith(PNG_SIGNATURE):
        return False
    position = len(PNG_SIGNATURE)
    kinds: list[bytes] = []
    lengths: list[int] = []
    while position + PNG_CHUNK_BYTES <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        if not kinds and data[position + 8 : position + 18] != struct.pack(
            ">IIBB", width, height, 8, PNG_COLOUR_TYPES.get(channels, 0xFF)
        ):
            return False
        kinds.append(kind)
        lengths.append(length)
        position += PNG_CHUNK_BYTES + length
    is_whole = position == len(data) and kinds == [b"IHDR", *[b"IDAT"] * (len(kinds) - 2), b"IEND"]
    return is_whole and (lengths[0], lengths[-1]) == (PNG_HEADER_BYTES, 0)  # decoders skip what else these hold


def read_png_pixels(data: bytes) -> int | None:
    """Return width times height as the header of a PNG gives them; None if the data are no PNG."""
    if not data.startswith(PNG_SIGNATURE) or len(data) < 24:
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return int(width * height)


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
