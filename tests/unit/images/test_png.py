import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from equipoise.images.png import (
    encode_png,
    is_plain_png,
    is_valid_png,
    jpeg_round_trip,
    parse_plain_png,
    read_png_pixels,
)


@pytest.mark.parametrize("channels", [1, 3])
def test_png_is_lossless_and_jpeg_nearly_so(channels):
    image = np.tile(np.arange(0, 240, 10, dtype=np.uint8), (channels, 16, 1))
    data = encode_png(image)
    assert is_valid_png(data) and not is_valid_png(data[:50])
    decoded = np.array(Image.open(io.BytesIO(data))).reshape(16, 24, channels).transpose(2, 0, 1)
    assert np.array_equal(decoded, image)
    jpeg = jpeg_round_trip(image, 90)
    assert jpeg.shape == image.shape and jpeg.dtype == np.uint8
    assert np.abs(jpeg.astype(int) - image).max() < 16


def save_image(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB")])
def test_png_of_nothing_but_pixels_is_plain(channels, mode):
    pixels = np.random.default_rng(0).integers(0, 256, (channels, 600, 400)).astype(np.uint8)  # several IDAT chunks
    data = encode_png(pixels)
    assert data.count(b"IDAT") > 1 and is_plain_png(data, (channels, 600, 400))
    assert is_plain_png(save_image(Image.new(mode, (5, 4))), (channels, 4, 5))


def test_png_with_metadata_of_another_shape_or_damaged_is_not_plain():
    image, shape = Image.new("RGB", (5, 4)), (3, 4, 5)
    text = PngInfo()
    text.add_text("Author", "someone")
    exif = Image.Exif()
    exif[0x010E] = "the shop at the corner"
    others = [save_image(image, pnginfo=text), save_image(image, exif=exif), save_image(image, dpi=(72, 72))]
    others += [save_image(Image.new(mode, (5, 4))) for mode in ("L", "RGBA", "P", "I;16", "1")]
    others += [save_image(image.resize((4, 5))), save_image(image, "JPEG"), b"", b"\x89PNG\r\n\x1a\n"]
    plain = save_image(image)
    others += [plain[:size] for size in range(len(plain))] + [plain + b"more", plain + plain[8:]]
    hidden = b"the shop at the corner"
    others.append(plain[:8] + struct.pack(">I", 13 + len(hidden)) + plain[12:29] + hidden + plain[29:])
    others.append(plain[:-12] + struct.pack(">I", len(hidden)) + b"IEND" + hidden + plain[-4:])
    assert not [data for data in others if is_plain_png(data, shape)] and is_plain_png(plain, shape)
    assert not is_plain_png(plain, (4, 4, 5))  # no image of four channels is kept


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("size", [(1, 1), (5, 4), (300, 200)])
def test_plain_png_has_the_pixels_that_pillow_reads(mode, size):
    channels = len(mode)
    pixels = np.random.default_rng(1).integers(0, 256, (*size[::-1], channels)).astype(np.uint8)
    data = save_image(Image.fromarray(pixels if channels == 3 else pixels[..., 0]))
    png = parse_plain_png(data)
    assert (png.width, png.height, png.channels, png.is_interlaced) == (*size, channels, False)
    assert png.decode().mode == mode and np.array_equal(np.array(png.decode()).reshape(pixels.shape), pixels)


def change_header(data: bytes, position: int, value: int) -> bytes:
    """Return a PNG with one byte of its header changed, and the checksum that belongs to it."""
    header = bytearray(data[12:29])
    header[4 + position] = value
    return data[:12] + bytes(header) + zlib.crc32(header).to_bytes(4) + data[33:]


def test_header_of_another_kind_or_with_a_wrong_checksum_is_not_plain():
    plain = save_image(Image.new("RGB", (5, 4)))
    assert parse_plain_png(change_header(plain, 12, 1)).is_interlaced
    for position, value in ((3, 0), (7, 0), (8, 16), (9, 3), (10, 1), (11, 1), (12, 2)):
        assert parse_plain_png(change_header(plain, position, value)) is None
    assert parse_plain_png(plain[:30] + bytes([plain[30] ^ 1]) + plain[31:]) is None


def test_pixels_are_counted_by_the_header_alone():
    data = save_image(Image.new("RGB", (300, 7)))
    assert read_png_pixels(data) == read_png_pixels(data[:24]) == 2100  # the pixels themselves are not needed
    for other in (data[:23], b"", b"\x00" + data[1:], save_image(Image.new("RGB", (5, 4)), "JPEG")):
        assert read_png_pixels(other) is None


def test_jpeg_of_lower_quality_is_further_from_the_image():
    image = np.random.default_rng(0).integers(0, 256, (3, 16, 16)).astype(np.uint8)
    errors = [np.abs(jpeg_round_trip(image, quality).astype(int) - image).mean() for quality in (100, 60, 10)]
    assert errors[0] < errors[1] < errors[2]
