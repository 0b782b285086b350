"""Captures of a detector hold the photograph: boxes are in its pixels, and fitted in once more it is what was seen."""

import io

import numpy as np
import pytest
from PIL import Image

from equipoise.boxes.found_box import FoundBox
from equipoise.captures.photograph import MAX_SIDE_PIXELS, keep_photograph
from equipoise.captures.store import CaptureStore
from equipoise.images.letterbox import letterbox_image, load_letterboxed
from tests.support.captures import build_request, decode_png

SQUARE = 48


def draw_photograph(width, height, kind="PNG", **options):
    """Return a photograph with a red thing in the right half of its upper half, as a file, and the box of the thing."""
    pixels = np.full((height, width, 3), 120, np.uint8)
    left, top, right, bottom = width // 2, height // 4, 3 * width // 4, height // 2
    pixels[top:bottom, left:right] = (220, 30, 40)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue(), (left, top, right - left, bottom - top)


def find_in_square(encoded, box, size=SQUARE):
    """Return a box of a photograph as a detector finds it, in pixels of its square, with the square."""
    with Image.open(io.BytesIO(encoded)) as image:
        square, letterbox = letterbox_image(image, size)
    return FoundBox("red", 0.9, *letterbox.boxes_to_square(np.array(box, np.float64)).tolist()), square


def list_sides(box):
    return [box.x, box.y, box.width, box.height]


@pytest.mark.parametrize(("width", "height"), [(48, 48), (120, 90), (90, 121), (31, 200), (1280, 960)])
def test_boxes_are_in_pixels_of_the_photograph_and_the_square_is_seen_again(width, height):
    encoded, sides = draw_photograph(width, height)
    found, square = find_in_square(encoded, sides)
    png, (kept,) = keep_photograph(encoded, [found], SQUARE)
    assert decode_png(png).shape == (height, width, 3)
    assert list_sides(kept) == pytest.approx(sides, abs=0.02 * max(width, height) / SQUARE)
    assert (kept.label, kept.score) == ("red", 0.9)
    np.testing.assert_array_equal(load_letterboxed(io.BytesIO(png), SQUARE)[0], square)


@pytest.mark.parametrize(("width", "height"), [(2560, 1920), (1300, 3001)])
def test_large_photograph_is_scaled_down_with_its_boxes(width, height):
    encoded, sides = draw_photograph(width, height)
    found, square = find_in_square(encoded, sides, 96)
    png, (kept,) = keep_photograph(encoded, [found], 96)
    kept_height, kept_width, _ = decode_png(png).shape
    assert max(kept_width, kept_height) == MAX_SIDE_PIXELS
    assert kept_width / kept_height == pytest.approx(width / height, rel=2e-3)
    expected = [side * kept_width / width for side in sides]
    assert list_sides(kept) == pytest.approx(expected, abs=1.5)
    seen_again = load_letterboxed(io.BytesIO(png), 96)[0]
    assert np.abs(seen_again.astype(float) - square).mean() < 1.0


def test_photograph_is_upright_and_says_nothing_else():
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "Anna's kitchen"
    encoded, _ = draw_photograph(120, 80, "JPEG", quality=95, exif=exif)
    assert b"kitchen" in encoded
    box, square = find_in_square(encoded, (0, 0, 80, 120))
    png, (kept,) = keep_photograph(encoded, [box], SQUARE)
    assert decode_png(png).shape == (120, 80, 3) and b"kitchen" not in png
    assert list_sides(kept) == pytest.approx([0, 0, 80, 120], abs=0.01)
    np.testing.assert_array_equal(load_letterboxed(io.BytesIO(png), SQUARE)[0], square)


def test_boxes_end_at_the_sides_of_the_photograph():
    encoded, _ = draw_photograph(90, 45)
    boxes = [FoundBox("red", 0.5, -4.0, 0.0, 30.0, 60.0), FoundBox("red", 0.4, 0.0, 0.0, 48.0, 3.0)]
    _, (large, beside) = keep_photograph(encoded, boxes, SQUARE)
    assert large.x == 0 and large.y == 0 and large.height == 45 and large.width == pytest.approx(26 * 90 / 48)
    assert beside.height == 0  # it lay in the grey beside the photograph


def test_plain_png_is_kept_as_it_was_sent_and_any_other_is_written_anew():
    encoded, _ = draw_photograph(60, 40)
    assert keep_photograph(encoded, [], SQUARE)[0] is encoded
    grey = io.BytesIO()
    Image.new("L", (60, 40), 99).save(grey, "PNG")
    png, _ = keep_photograph(grey.getvalue(), [], SQUARE)
    assert png != grey.getvalue() and decode_png(png).shape == (40, 60, 3)


def test_captures_for_labelling_hold_the_photograph_and_samples_what_the_model_took(tmp_path):
    encoded, sides = draw_photograph(120, 90)
    found, square = find_in_square(encoded, sides)
    for name, is_uniform in (("labels", False), ("sample", True)):
        store = CaptureStore(str(tmp_path / name))
        assert store.offer(build_request(picture=square, encoded=encoded, boxes=(found,), is_uniform=is_uniform))
        (capture,) = store.list_captures()
        expected = (48, 48, 3) if is_uniform else (90, 120, 3)
        assert decode_png(store.read_png(capture.id)).shape == expected
        (kept,) = capture.boxes
        assert kept == found if is_uniform else list_sides(kept) == pytest.approx(sides, abs=0.1)


def test_tensor_sent_to_a_detector_is_kept_as_it_came(tmp_path):
    _, square = find_in_square(*draw_photograph(48, 48))
    store, box = CaptureStore(str(tmp_path)), FoundBox("red", 0.9, 1.0, 2.0, 3.0, 4.0)
    assert store.offer(build_request(picture=square, boxes=(box,)))
    (capture,) = store.list_captures()
    assert capture.boxes == (box,)
    np.testing.assert_array_equal(decode_png(store.read_png(capture.id)).transpose(2, 0, 1), square)
