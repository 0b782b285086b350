"""Encode images as PNG, check PNGs and apply JPEG compression, without importing torch."""

import io
import struct
import zlib
from typing import NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import ArrayLike, NDArray
from PIL import Image

INFLATE_ERROR: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # its stub calls it an instance
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_CHUNK_BYTES = 12  # of a chunk beside its data: length, kind and checksum
PNG_HEADER_BYTES = 13  # of data in the first chunk
PLAIN_CHUNKS = (b"IHDR", b"IDAT", b"IEND")
PNG_HEADER_FORMAT = ">IIBBBBB"  # width, height, bits, colour type, compression, filter, interlacing
PNG_CHANNELS = {0: 1, 2: 3}  # of grey and RGB, by colour type
PILLOW_MODES = {1: "L", 3: "RGB"}  # by number of channels
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


class PlainPng(NamedTuple):
    """PNG of 8-bit grey or RGB pixels that says nothing about where, when or by whom the photograph was taken."""

    width: int
    height: int
    channels: int
    is_interlaced: bool
    compressed_pixels: bytes

    def decode(self) -> Image.Image:
        """Decode the pixels, without what Pillow does for PNGs of any kind; ValueError if they are damaged."""
        mode = PILLOW_MODES[self.channels]
        num_bytes = self.height * (1 + self.width * self.channels)  # a filter in front of each row
        rows = None if self.is_interlaced else inflate_exactly(self.compressed_pixels, num_bytes)
        stream = self.compressed_pixels if rows is None else zlib.compress(rows, level=0)
        return Image.frombytes(mode, (self.width, self.height), stream, "zip", (mode, self.is_interlaced))


def inflate_exactly(stream: bytes, num_bytes: int) -> bytes | None:
    """Return what a zlib stream holds, inflated in a third of zlib's time; None unless it is sound and that long."""
    inflator = isal_zlib.decompressobj()
    try:
        content: bytes = inflator.decompress(stream, num_bytes + 1)  # no more, however much the stream holds
    except INFLATE_ERROR:
        return None
    return content if inflator.eof and len(content) == num_bytes else None


def parse_plain_png(data: bytes) -> PlainPng | None:
    """Return the parts of a PNG of 8-bit grey or RGB pixels without any other chunk; None for any other data."""
    if not data.startswith(PNG_SIGNATURE):
        return None
    position = len(PNG_SIGNATURE)
    kinds: list[bytes] = []
    contents: list[bytes] = []
    while position + PNG_CHUNK_BYTES <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        if kind not in PLAIN_CHUNKS:
            return None
        kinds.append(kind)
        contents.append(data[position + 8 : position + 8 + length])
        position += PNG_CHUNK_BYTES + length
    if position != len(data) or kinds != [b"IHDR", *[b"IDAT"] * (len(kinds) - 2), b"IEND"]:
        return None
    header, *pixels, end = contents
    if len(header) != PNG_HEADER_BYTES or end:  # decoders skip what else these hold
        return None
    width, height, bits, colour_type, compression, filtering, interlacing = struct.unpack(PNG_HEADER_FORMAT, header)
    is_sound = zlib.crc32(b"IHDR" + header).to_bytes(4) == data[len(PNG_SIGNATURE) + 8 + PNG_HEADER_BYTES :][:4]
    is_usual = (bits, compression, filtering) == (8, 0, 0) and interlacing in (0, 1) and width and height
    if not (is_sound and is_usual and colour_type in PNG_CHANNELS):
        return None
    return PlainPng(width, height, PNG_CHANNELS[colour_type], bool(interlacing), b"".join(pixels))


def is_plain_png(data: bytes, shape: tuple[int, ...]) -> bool:
    """Return whether data is a plain PNG of `shape` (channels, height, width), whose pixels need no conversion."""
    png = parse_plain_png(data)
    return png is not None and (png.channels, png.height, png.width) == shape


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
