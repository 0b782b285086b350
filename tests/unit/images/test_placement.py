import io

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from equipoise.images.letterbox import fit_letterbox
from equipoise.images.placement import ImagePlacement, load_placed_image, place_image
from tests.support.errors import raises_code

SIDES = st.integers(1, 400)


@given(SIDES, SIDES, st.integers(8, 200))
def test_sides_of_the_photograph_come_back_exactly(width, height, size):
    placement = ImagePlacement(width, height, fit_letterbox(width, height, size))
    whole = np.array([[0.0, 0.0, width, height]])
    boxes = placement.letterbox.boxes_to_square(whole)
    np.testing.assert_allclose(placement.to_photograph(boxes), whole, rtol=1e-7, atol=1e-7)


def test_boxes_are_cut_at_the_sides_of_the_photograph():
    placement = ImagePlacement(200, 100, fit_letterbox(200, 100, 100))
    boxes = np.array([[-10.0, 20, 30, 20], [0, 0, 100, 10], [90, 60, 30, 5]])
    assert placement.to_photograph(boxes).tolist() == [[0, 0, 40, 30], [0, 0, 200, 0], [180, 70, 20, 10]]


def test_photograph_of_the_size_of_the_input_stays_as_it_is():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    tensor, placement = place_image(Image.fromarray(pixels), 32)
    assert torch.equal(tensor.permute(1, 2, 0), torch.from_numpy(pixels))
    boxes = np.array([[1.0, 2, 3, 4]], np.float32)
    moved = placement.to_photograph(boxes)
    assert moved.dtype == np.float32
    assert np.array_equal(moved, boxes)


def test_sides_are_those_of_the_upright_photograph():
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    for kind in ("JPEG", "PNG", "WEBP"):
        file = io.BytesIO()
        Image.new("RGB", (40, 20), "red").save(file, kind, exif=exif)
        _, placement = load_placed_image(file.getvalue(), 32)
        assert (placement.width, placement.height) == (20, 40)


def test_broken_file_is_refused(tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(b"no image")
    for source in (path, b"no image"):
        with raises_code("image-undecodable"):
            load_placed_image(source, 8)
