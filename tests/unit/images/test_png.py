import io
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from equipoise.images.png import (
    encode_png,
    inflate_exactly,
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


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("level", [0, 1, 9])
def test_plain_png_is_decoded_to_its_pixels(channels, level):
    noise = np.random.default_rng(0).integers(0, 256, (61, 47, channels)).astype(np.uint8)
    slope = np.broadcast_to(np.arange(61, dtype=np.uint8)[:, None, None] * 3, noise.shape)
    for pixels in (noise, slope, noise // 64 + slope):
        image = Image.fromarray(np.ascontiguousarray(pixels.squeeze()))
        png = parse_plain_png(save_image(image, compress_level=level))
        assert np.array_equal(np.asarray(png.decode()), np.asarray(image))


def test_stream_is_inflated_if_it_is_sound_and_as_long_as_expected():
    content = bytes(range(256)) * 40
    stream = zlib.compress(content)
    assert inflate_exactly(stream, len(content)) == content
    for length in (0, 1, len(content) - 1, len(content) + 1, 10**9):
        assert inflate_exactly(stream, length) is None
    for damaged in (b"", stream[:-1], stream[:-1] + b"!", stream[:40], b"?" + stream[1:]):
        assert inflate_exactly(damaged, len(content)) is None


def test_stream_that_holds_much_more_than_expected_is_not_inflated():
    stream = zlib.compress(bytes(200 << 20))
    tracemalloc.start()
    assert inflate_exactly(stream, 1000) is None
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_plain_png_with_damaged_pixels_is_decoded_or_refused_as_by_pillow():
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3)).astype(np.uint8)
    png = parse_plain_png(save_image(Image.fromarray(pixels)))
    for size in range(0, len(png.compressed_pixels), 37):
        damaged = png._replace(compressed_pixels=png.compressed_pixels[:size])
        with pytest.raises(ValueError, match="image data"):
            damaged.decode()
