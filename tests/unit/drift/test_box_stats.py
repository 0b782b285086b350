import numpy as np
import pytest

from equipoise.drift.features.box_stats import (
    COUNT_NAMES,
    BoxEncoder,
    FoundBoxes,
    classify_counts,
    fit_box_encoder,
)
from equipoise.drift.features.image_stats import STATISTIC_NAMES, image_statistics

CLASSES = ("cola", "water")
PICTURES = np.random.default_rng(0).integers(0, 256, (3, 3, 32, 32), np.uint8)
FOUND = FoundBoxes(
    scores=np.array([[0.9, 0.8, 0.1], [0.6, 0.2, 0.1], [0.3, 0.2, 0.1]]),
    boxes=np.array([[[0, 0, 4, 8], [9, 9, 8, 8], [1, 1, 9, 9]], [[0, 0, 16, 4]] * 3, [[0, 0, 1, 1]] * 3], float),
    labels=np.array([[0, 1, 1], [1, 0, 0], [0, 0, 0]]),
    features=np.zeros((3, 2)),
)


@pytest.fixture
def encoder():
    return fit_box_encoder(FOUND, CLASSES, threshold=0.5)


def test_statistics_are_those_of_the_image_and_of_the_boxes_that_count(encoder):
    rows = encoder.statistics(PICTURES, FOUND)
    assert rows.shape == (3, len(encoder.schema) - 2) and rows.dtype == np.float32
    np.testing.assert_array_equal(rows[:, : len(STATISTIC_NAMES)], image_statistics(PICTURES))
    outputs = dict(zip(encoder.schema.names[len(STATISTIC_NAMES) :], rows[:, len(STATISTIC_NAMES) :].T, strict=False))
    assert outputs["boxes"].tolist() == [2, 1, 0]
    assert outputs["boxes of cola"].tolist() == [1, 0, 0] and outputs["boxes of water"].tolist() == [1, 1, 0]
    np.testing.assert_allclose(outputs["largest score"], np.log([9, 1.5, 3 / 7]), rtol=1e-5)
    np.testing.assert_allclose(outputs["area"][:2], [np.log(32 * 64) / 2, np.log(64)], rtol=1e-6)
    np.testing.assert_allclose(outputs["aspect"][:2], [np.log(0.5) / 2, np.log(4)], rtol=1e-6)


def test_image_without_boxes_has_the_usual_box_of_the_reference(encoder):
    area = list(encoder.schema.names).index("area")
    boxes = [np.log(32), np.log(64), np.log(64)]
    assert encoder.statistics(PICTURES, FOUND)[2, area] == pytest.approx(np.mean(boxes), rel=1e-6)
    nothing = FoundBoxes(FOUND.scores * 0.1, FOUND.boxes, FOUND.labels, FOUND.features)
    assert np.isfinite(fit_box_encoder(nothing, CLASSES, 0.5).statistics(PICTURES, nothing)).all()


def test_images_are_sorted_by_the_number_of_their_boxes(encoder):
    assert encoder.classes(FOUND).tolist() == [2, 1, 0]
    names = [COUNT_NAMES[index] for index in classify_counts(np.array([0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 300]))]
    assert names == [
        *COUNT_NAMES[:3], *["3 or 4 boxes"] * 2, *["5 to 8 boxes"] * 2, *["9 to 16 boxes"] * 2, *[COUNT_NAMES[-1]] * 2
    ]  # fmt: skip


def test_encoder_is_stored_as_arrays(encoder):
    other = BoxEncoder.from_arrays(encoder.to_arrays())
    assert other.class_names == CLASSES and other.schema == encoder.schema
    np.testing.assert_array_equal(other.statistics(PICTURES, FOUND), encoder.statistics(PICTURES, FOUND))
