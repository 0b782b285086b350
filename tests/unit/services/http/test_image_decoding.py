"""Images from clients are decoded like those of training, within a limit on the pixels that their headers declare."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from equipoise.images.decode import load_image
from services.http import image_decoding
from services.http.errors import RequestRejected
from services.http.image_decoding import decode_image
from tests.support.rejections import raises_rejection

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3)).astype(np.uint8)


def encode(pixels, image_format, **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, image_format, **options)
    return file.getvalue()


def build_png_header(width, height):
    """Return a PNG that declares a size and holds no pixels."""

    def build_chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = build_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + build_chunk(b"IDAT", zlib.compress(b"")) + build_chunk(b"IEND", b"")


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("shape", [(3, 20, 30), (1, 20, 30), (3, 8, 8)])
def test_image_is_decoded_as_for_training(image_format, shape):
    data = encode(PIXELS, image_format)
    decoded = decode_image(data, shape, 10_000)
    assert decoded.shape == shape and decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded, load_image(io.BytesIO(data), shape))


def test_lossless_image_keeps_its_pixels():
    np.testing.assert_array_equal(decode_image(encode(PIXELS, "PNG"), (3, 20, 30), 600).transpose(1, 2, 0), PIXELS)


def test_image_beyond_the_limit_is_rejected_before_it_is_decoded():
    with raises_rejection(413, "599 pixels", "30x20"):
        decode_image(encode(PIXELS, "PNG"), (3, 20, 30), 599)
    with raises_rejection(413, "10000 pixels", "5000x3000"):
        decode_image(build_png_header(5000, 3000), (3, 20, 30), 10_000)


@pytest.mark.parametrize("side", [13_000, 14_000, 60_000])
def test_image_beyond_the_limit_of_pillow_is_too_large_whatever_our_limit(side):
    with raises_rejection(413, f"{10**10} pixels", str(side * side)):
        decode_image(build_png_header(side, side), (3, 20, 30), 10**10)


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", encode(PIXELS, "BMP"), encode(PIXELS, "GIF"), encode(PIXELS, "TIFF")],
    ids=["empty", "text", "BMP", "GIF", "TIFF"],
)
def test_other_data_is_rejected_with_the_accepted_formats(data):
    with raises_rejection(400, "PNG, JPEG, WEBP"):
        decode_image(data, (3, 20, 30), 10_000)


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "WEBP"])
def test_truncated_image_is_rejected(image_format):
    data = encode(PIXELS, image_format)
    for size in (30, len(data) // 2):
        with raises_rejection(400):
            decode_image(data[:size], (3, 20, 30), 10_000)


def test_image_without_pixels_is_rejected():
    with raises_rejection(400, "cannot be read"):
        decode_image(build_png_header(30, 20), (3, 20, 30), 10_000)


def read_outcome(data):
    """Return the pixels of an image, or the status with which it is rejected."""
    try:
        return decode_image(data, (3, 20, 30), 10_000).tolist()
    except RequestRejected as rejection:
        return rejection.status


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_damaged_plain_png_is_decoded_or_rejected_as_pillow_does(mode, monkeypatch):
    data = encode(np.asarray(Image.fromarray(PIXELS).convert(mode)), "PNG")
    generator = np.random.default_rng(2)
    damaged = [data[:size] for size in range(0, len(data), 40)] + [data + b"more"]
    for position, value in zip(generator.integers(0, len(data), 400), generator.integers(1, 256, 400), strict=True):
        damaged.append(data[:position] + bytes([data[position] ^ value]) + data[position + 1 :])
    outcomes = [read_outcome(case) for case in [data, *damaged]]
    monkeypatch.setattr(image_decoding, "decode_plain_png", lambda *_: None)
    assert outcomes == [read_outcome(case) for case in [data, *damaged]]
    assert 400 in outcomes and sum(outcome != 400 for outcome in outcomes) > 1
