"""Drift of images with boxes: the light is named as for labelled images, and what is found where that has changed."""

import numpy as np
import pytest
import torch

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.features.box_stats import COUNT_NAMES
from equipoise.drift.profiling.box_profile import SearchedImages, extract_box_features
from equipoise.drift.reference.profile import profile_from_arrays
from tests.support.errors import raises_code
from tests.support.image_changes import build_lamp_transform
from tests.support.quick_profile import build_quick_profile
from tests.support.square_detector import draw_squares, extract_square_features, find_squares, squares_profile

pytestmark = pytest.mark.slow  # building a profile takes 12 seconds
RUN_LENGTH_IMAGES, STEP_IMAGES = 20_000.0, 16


def watch(*parts):
    """Return the verdict on images in order, a step at a time, at the first alarm."""
    detector = StreamDetector.start(squares_profile(), RUN_LENGTH_IMAGES)
    for images in parts:
        features = extract_square_features(images)
        for start in range(0, len(images) - STEP_IMAGES + 1, STEP_IMAGES):
            step = features.select(np.arange(start, start + STEP_IMAGES))
            detector.add_sums(squares_profile().baseline.sum_features(step), 0.0)
            if detector.alarm:
                return compute_stream_verdict(detector)
    return compute_stream_verdict(detector)


def test_clean_images_are_ok():
    verdict = watch(draw_squares(480, 7)[0])
    assert verdict.state == "ok" and verdict.kind == "boxes" and verdict.images == 480
    assert sum(verdict.classes.values()) == 480 and set(verdict.classes) == set(COUNT_NAMES)
    assert verdict.accuracy == "unknown"


def test_warmer_light_is_named():
    verdict = watch(draw_squares(160, 8)[0], build_lamp_transform(3000)(draw_squares(160, 9)[0]))
    assert (verdict.state, verdict.cause) == ("drift", "colour temperature"), verdict.why
    assert verdict.effects[0].detail == "warmer" and verdict.images <= 240


def test_missing_class_is_named_by_its_boxes():
    verdict = watch(draw_squares(160, 10)[0], draw_squares(640, 11, shares=(1.0, 0.0))[0])
    assert (verdict.state, verdict.cause) == ("drift", "classes of boxes"), verdict.why
    assert "boxes of red is" in verdict.why and verdict.effects[0].unit == "boxes per image"


def test_empty_images_are_named_by_their_number_of_boxes():
    empty = draw_squares(320, 12)[0].float().mean((2, 3), keepdim=True).expand(-1, -1, 48, 48)
    noise = torch.randn(320, 3, 48, 48, generator=torch.manual_seed(0)) * 12
    verdict = watch(draw_squares(160, 10)[0], (empty + noise).clamp(0, 255).to(torch.uint8))
    assert verdict.state == "drift" and verdict.cause is not None


def test_profile_is_stored_and_read():
    arrays, images = squares_profile().to_arrays(), draw_squares(20, 3)[0]
    width = squares_profile().baseline.random_fourier.directions.shape[0]
    stored = profile_from_arrays(arrays, COUNT_NAMES, width)
    assert stored.schema == squares_profile().schema and not stored.schema.has_accuracy
    searched = SearchedImages(images, find_squares(images))
    for read, built in zip(
        vars(extract_box_features(stored, searched)).values(),
        vars(extract_square_features(images)).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(read, built)


def test_images_with_boxes_are_refused_by_a_profile_of_labelled_images():
    images = draw_squares(2, 3)[0]
    with raises_code("reference-unusable", "images with boxes"):
        extract_box_features(build_quick_profile(), SearchedImages(images, find_squares(images)))
