import io

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from equipoise.images.placement import BORDER_LEVEL, ImagePlacement, load_placed_image, place_image
from tests.support.errors import raises_code

SIDES = st.integers(1, 400)


@given(SIDES, SIDES, st.integers(8, 200), st.integers(8, 200))
def test_corners_of_the_photograph_come_back_exactly(width, height, input_width, input_height):
    placement = ImagePlacement(width, height, input_width, input_height)
    (left, top), (placed_width, placed_height) = placement.corner, placement.placed_size
    assert left >= 0 and top >= 0 and left + placed_width <= input_width and top + placed_height <= input_height
    boxes = torch.tensor([[left, top, placed_width, placed_height]], dtype=torch.float64)
    whole = torch.tensor([[0, 0, width, height]], dtype=torch.float64)
    torch.testing.assert_close(placement.to_photograph(boxes), whole)
    torch.testing.assert_close(placement.to_input(whole), boxes)


def test_boxes_are_cut_at_the_sides_of_the_photograph():
    placement = ImagePlacement(200, 100, 100, 100)
    boxes = torch.tensor([[-10.0, 20, 30, 20], [0, 0, 100, 10], [90, 60, 30, 5]])
    assert placement.to_photograph(boxes).tolist() == [[0, 0, 40, 30], [0, 0, 200, 0], [180, 70, 20, 10]]


def test_photograph_is_placed_in_the_middle_of_a_grey_border():
    pixels = np.random.default_rng(0).integers(0, 256, (30, 60, 3), np.uint8)
    tensor, placement = place_image(Image.fromarray(pixels), (3, 60, 60))
    assert placement == ImagePlacement(60, 30, 60, 60)
    assert torch.equal(tensor[:, 15:45].permute(1, 2, 0), torch.from_numpy(pixels))
    assert (tensor[:, :15] == BORDER_LEVEL).all() and (tensor[:, 45:] == BORDER_LEVEL).all()


def test_sides_are_those_of_the_upright_photograph():
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6  # lies on its side
    Image.new("RGB", (40, 20), "red").save(file, "JPEG", exif=exif)
    _, placement = load_placed_image(file.getvalue(), (3, 32, 32))
    assert (placement.width, placement.height) == (20, 40)


def test_broken_file_is_refused(tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(b"no image")
    for source in (path, b"no image"):
        with raises_code("image-undecodable"):
            load_placed_image(source, (3, 8, 8))


@pytest.mark.parametrize("channels", [1, 3])
def test_channels_are_those_of_the_model(channels):
    tensor, _ = place_image(Image.new("RGB", (9, 5)), (channels, 16, 16))
    assert tensor.shape == (channels, 16, 16)
