"""Simulated staff at the labelling page: each picture is labelled once, nearly right, in pixels of what they see."""

import numpy as np
import pytest
from PIL import Image

from equipoise.labels.store import LabelStore
from jobs.demo.label_staff import BOX_NOISE_PIXELS, STAFF_NAMES, LabelStaff, draw_box
from tests.support.labelling import CLASSES, serve_labelling, write_pictures


def read_truth(folder, names):
    """Return the true boxes of pictures of `write_pictures` by their pixels."""
    truth = {}
    for number, name in enumerate(names):
        pixels = np.asarray(Image.open(folder / name)).transpose(2, 0, 1)
        truth[np.ascontiguousarray(pixels).tobytes()] = np.array([[number % 3, 10 + number % 40, 20, 30, 40, 0.0]])
    return truth


@pytest.mark.parametrize(("wanted", "expected"), [(5, 5), (50, 12)])
def test_pictures_are_labelled_together_each_once(tmp_path, wanted, expected):
    names = write_pictures(tmp_path / "photos", 12)
    truth = read_truth(tmp_path / "photos", names)
    with serve_labelling(tmp_path) as client:
        work = LabelStaff(client.port, truth, CLASSES).label_pictures(wanted)
        queue = client.get("/queue?holder=robot")[1]
    assert (work.pictures, work.boxes) == (expected, expected) and sum(work.by_author.values()) == expected
    assert (queue["labelled"], queue["with_others"]) == (expected, 0)  # pages that are closed hold nothing
    labels = LabelStore(tmp_path / "labels").read_all()[0]
    assert {entry.author for entry in labels} <= {*STAFF_NAMES} and {entry.revision for entry in labels} == {1}
    for entry in labels:
        number = names.index(entry.picture)
        (box,) = entry.boxes
        assert box.label == CLASSES[number % 3]
        assert [box.x, box.y] == pytest.approx([10 + number % 40, 20], abs=5 * BOX_NOISE_PIXELS)


def test_nobody_draws_to_the_pixel():
    rng = np.random.default_rng(0)
    boxes = [draw_box("cola", np.array([20.0, 30, 25, 40]), rng) for _ in range(4000)]
    corners = np.array([[box.x, box.y, box.x + box.width, box.y + box.height] for box in boxes])
    np.testing.assert_allclose(corners.mean(0), [20, 30, 45, 70], atol=0.15)
    np.testing.assert_allclose(corners.std(0), BOX_NOISE_PIXELS, rtol=0.05)
    tiny = [draw_box("cola", np.array([20.0, 30, 1, 1]), rng) for _ in range(100)]
    assert min(min(box.width, box.height) for box in tiny) >= 2
