import io

import numpy as np
import pytest
from PIL import Image

from equipoise.images.png import encode_png, is_valid_png, jpeg_round_trip


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_survives_png_exactly_and_jpeg_nearly(channels):
    picture = np.tile(np.arange(0, 240, 10, dtype=np.uint8), (channels, 16, 1))
    data = encode_png(picture)
    assert is_valid_png(data) and not is_valid_png(data[:50])
    decoded = np.array(Image.open(io.BytesIO(data))).reshape(16, 24, channels).transpose(2, 0, 1)
    assert np.array_equal(decoded, picture)
    again = jpeg_round_trip(picture, 90)
    assert again.shape == picture.shape and again.dtype == np.uint8
    assert np.abs(again.astype(int) - picture).max() < 16
