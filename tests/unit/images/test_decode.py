"""Photographs are turned upright as their EXIF says, by every orientation that cameras write."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from equipoise.images.decode import image_to_array, load_image
from equipoise.images.orientation import EXIF_ORIENTATION_TAG, apply_exif_orientation, read_upright_size
from tests.support.errors import raises_code


def save_with_orientation(orientation):
    """Return a picture without symmetry, as a JPEG file with an orientation in its EXIF."""
    values = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
    picture = Image.fromarray(np.kron(values, np.ones((16, 16), np.uint8)))
    exif = Image.Exif()
    exif[EXIF_ORIENTATION_TAG] = orientation
    file = io.BytesIO()
    picture.save(file, "JPEG", exif=exif)
    return file


@pytest.mark.parametrize("orientation", range(0, 10))
def test_every_orientation_is_turned_upright(orientation):
    with Image.open(save_with_orientation(orientation)) as image:
        upright = np.asarray(apply_exif_orientation(image))
        np.testing.assert_array_equal(upright, np.asarray(ImageOps.exif_transpose(image)))
        assert upright.shape == ((48, 32) if orientation in (5, 6, 7, 8) else (32, 48))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
def test_tiff_is_turned_upright_whatever_its_pixels(tmp_path, mode, compression):
    values = np.arange(12, dtype=np.uint16).reshape(3, 4)
    gray = Image.fromarray(values.astype(np.uint8))
    picture = Image.fromarray(values) if mode == "I;16" else gray.convert("RGB").convert(mode)
    exif = Image.Exif()
    exif[EXIF_ORIENTATION_TAG] = 6
    picture.save(tmp_path / "a.tif", exif=exif, compression=compression)
    with Image.open(tmp_path / "a.tif") as image:
        upright = apply_exif_orientation(image)
        np.testing.assert_array_equal(np.asarray(upright), np.asarray(picture.transpose(Image.Transpose.ROTATE_270)))
    assert upright.size == read_upright_size(tmp_path / "a.tif") == (3, 4)


def test_photograph_of_more_than_80_million_pixels_is_refused_before_it_is_decoded():
    for height, is_refused in ((8000, False), (8001, True)):
        file = io.BytesIO()
        Image.new("1", (10_000, height)).save(file, "PNG")
        if is_refused:
            with raises_code("image-undecodable", "10000x8001 pixels, more than 80000000"):
                load_image(file, (1, 8, 8))
        else:
            assert load_image(file, (1, 8, 8)).shape == (1, 8, 8)


@pytest.mark.parametrize(("shape", "values"), [((3, 6, 4), (10, 200, 90)), ((1, 4, 4), (128,))])
def test_photograph_has_the_shape_that_a_model_takes(shape, values):
    file = io.BytesIO()
    Image.new("RGB", (30, 20), (10, 200, 90)).save(file, "PNG")
    pixels = load_image(file, shape)
    assert pixels.shape == shape and pixels.flatten(1).float().std(1).max() == 0
    assert pixels[:, 0, 0].tolist() == pytest.approx(values, abs=3)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_photograph_of_16_bits_keeps_its_upper_8(dtype):
    values = np.array([[0, 255, 256], [0x7FFF, 0x8000, 0xFFFF]], dtype)
    pixels = image_to_array(Image.fromarray(values), (1, 2, 3))
    assert pixels.tolist() == [[[0, 0, 1], [127, 128, 255]]]


@pytest.mark.parametrize(
    "values", [np.array([[0, 0x10000]], np.int32), np.array([[-1, 5]], np.int32), np.array([[0.0, 0.5]], np.float32)]
)
def test_photograph_without_a_known_white_is_refused(values):
    with raises_code("image-undecodable", "no known white"):
        image_to_array(Image.fromarray(values), (1, 1, 2))


def test_centre_of_a_photograph_of_another_aspect_is_kept():
    columns = np.repeat(np.arange(6, dtype=np.uint8) * 40, 2)
    wide = Image.fromarray(np.tile(columns, (4, 1)))
    assert image_to_array(wide, (1, 4, 4)).tolist() == [[[80, 80, 120, 120]] * 4]
    tall = Image.fromarray(np.tile(columns, (4, 1)).T)
    assert image_to_array(tall, (1, 4, 4))[0, :, 0].tolist() == [80, 80, 120, 120]


def test_photograph_with_a_damaged_exif_is_left_as_it_is():
    picture, file = Image.fromarray(np.arange(6, dtype=np.uint8).reshape(2, 3)), io.BytesIO()
    picture.save(file, "PNG", exif=b"Exif\0\0" + b"MM\0*" + b"\xff" * 8)
    with Image.open(file) as image:
        np.testing.assert_array_equal(np.asarray(apply_exif_orientation(image)), np.asarray(picture))
