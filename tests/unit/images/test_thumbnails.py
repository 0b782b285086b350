"""Thumbnails of a bundle's reference: evenly spaced, with the name of their class."""

import io

import numpy as np
from PIL import Image

from equipoise.images.thumbnails import make_thumbnail, reference_thumbnails


def build_reference(count):
    """Build pictures whose grey value is their number, of which the k-th stands at place 2k of the reference."""
    pictures = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1).repeat(8, 2).repeat(8, 3)
    labels = np.arange(2 * count) // 2 % 3
    return {"pictures": pictures, "labels": labels, "places": np.arange(count) * 2}


def read_grey(png):
    with Image.open(io.BytesIO(png)) as image:
        return int(np.asarray(image.convert("L")).mean())


def test_first_and_last_and_evenly_spaced_images_between_are_shown_with_their_class():
    thumbnails = reference_thumbnails(build_reference(100), ["a", "b", "c"])
    numbers = [read_grey(png) for png, _ in thumbnails]
    assert len(numbers) == 12 and (numbers[0], numbers[-1]) == (0, 99)
    assert np.ptp(np.diff(numbers)) <= 1
    assert [caption for _, caption in thumbnails] == ["abc"[number % 3] for number in numbers]


def test_few_images_are_all_shown_and_none_without_a_reference():
    reference = build_reference(4)
    assert [read_grey(png) for png, _ in reference_thumbnails(reference, ["a", "b", "c"])] == [0, 1, 2, 3]
    del reference["places"]
    assert {caption for _, caption in reference_thumbnails(reference, ["a", "b", "c"])} == {""}
    assert (
        reference_thumbnails({}, ["a"]) == [] and reference_thumbnails({"pictures": np.empty((0, 1, 8, 8))}, []) == []
    )


def test_large_image_is_scaled_down_and_a_small_one_kept():
    images = {side: Image.fromarray(np.full((side, 2 * side, 3), 90, np.uint8)) for side in (32, 100)}
    for side, image in images.items():
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        thumbnail = make_thumbnail(buffer.getvalue())
        assert (thumbnail == buffer.getvalue()) == (side == 32)
        with Image.open(io.BytesIO(thumbnail)) as small:
            assert (small.format, small.size) == ("PNG", (64, 32)) and read_grey(thumbnail) == 90
