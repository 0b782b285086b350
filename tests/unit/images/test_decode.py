"""Photographs are turned upright as their EXIF says, by every orientation that cameras write."""

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from equipoise.images.decode import EXIF_ORIENTATION_TAG, apply_exif_orientation


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
