import io

import numpy as np
import pytest
from PIL import Image

from equipoise.images.png import encode_png, is_valid_png, jpeg_round_trip


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
