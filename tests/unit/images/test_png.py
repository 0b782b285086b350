import io

import numpy as np
import pytest
from PIL import Image

from equipoise.images.png import encoded, readable, through_jpeg


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_survives_png_exactly_and_jpeg_nearly(channels):
    picture = np.tile(np.arange(0, 240, 10, dtype=np.uint8), (channels, 16, 1))
    data = encoded(picture)
    assert readable(data) and not readable(data[:50])
    decoded = np.array(Image.open(io.BytesIO(data))).reshape(16, 24, channels).transpose(2, 0, 1)
    assert np.array_equal(decoded, picture)
    again = through_jpeg(picture, 90)
    assert again.shape == picture.shape and again.dtype == np.uint8
    assert np.abs(again.astype(int) - picture).max() < 16
