import io

import numpy as np
from PIL import Image

from equipoise.boxes.box_thumbnails import MAX_BOXED_SIDE_PIXELS, boxed_thumbnails, count_labels, draw_found_boxes
from equipoise.boxes.found_box import FoundBox
from equipoise.images.png import encode_png

PICTURE = np.zeros((3, 40, 80), np.uint8)


def read_pixels(png):
    return np.array(Image.open(io.BytesIO(png)).convert("RGB"))


def test_box_is_drawn_along_its_sides_and_nowhere_else():
    pixels = read_pixels(draw_found_boxes(encode_png(PICTURE), [FoundBox("cola", 0.9, 10, 10, 30, 20)]))
    assert pixels.shape == (MAX_BOXED_SIDE_PIXELS // 2, MAX_BOXED_SIDE_PIXELS, 3)
    drawn = np.argwhere(pixels.any(2))
    assert drawn.min(0).tolist() == [20, 20] and drawn.max(0).tolist() == [60, 80]
    assert not pixels[25:55, 25:75].any()


def test_picture_without_boxes_is_only_scaled():
    assert not read_pixels(draw_found_boxes(encode_png(PICTURE), [])).any()


def test_reference_images_have_the_boxes_that_count():
    arrays = {
        "pictures": np.stack([PICTURE] * 2),
        "places": np.array([0, 2]),
        "scores": np.array([[0.9, 0.2], [0.9, 0.9], [0.3, 0.2]]),
        "boxes": np.full((3, 2, 4), 8.0),
        "labels": np.array([[1, 0], [0, 0], [1, 1]]),
    }
    thumbnails = boxed_thumbnails(arrays, ["cola", "water"], 0.5)
    assert [caption for _, caption in thumbnails] == ["1 water", "no box"]
    assert [bool(read_pixels(png).any()) for png, _ in thumbnails] == [True, False]
    assert boxed_thumbnails({}, ["cola"], 0.5) == []


def test_found_labels_are_counted():
    assert count_labels(["cola", "water", "cola"]) == "2 cola, 1 water" and count_labels([]) == "no box"


def test_line_of_pixels_stays_a_line():
    assert read_pixels(draw_found_boxes(encode_png(np.zeros((3, 1, 800), np.uint8)), [])).shape[:2] == (1, 160)
    assert read_pixels(draw_found_boxes(encode_png(np.zeros((3, 800, 1), np.uint8)), [])).shape[:2] == (160, 1)
