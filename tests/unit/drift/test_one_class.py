"""A workload with a single class is monitored by everything but the charts of classes."""

import json
from functools import cache

import numpy as np
import pytest
import torch

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.profiling.build_profile import LabelledOutputs, build_reference_profile
from tests.support.drift_data import render_shapes, score_shapes

RUN_LENGTH_IMAGES = 2000.0  # images without drift per false alarm


def score_single_class(batch):
    """Return one logit, and the features of the toy model."""
    return torch.ones(len(batch), 1), score_shapes(batch)[1]


def predict_single_class(images):
    logits, features = (output.numpy() for output in score_single_class(images))
    return LabelledOutputs(images, logits, features, np.zeros(len(images), np.int64))


@cache
def single_class_profile():
    reference, holdout = (predict_single_class(render_shapes(count, seed)[0]) for count, seed in ((300, 1), (200, 2)))
    return build_reference_profile(score_single_class, reference, 1.0, holdout, 60)


def extract_features(images):
    outputs = predict_single_class(images)
    return single_class_profile().baseline.extract_features(images.numpy(), outputs.logits, outputs.features)


def run_detector(*parts):
    detector = StreamDetector.start(single_class_profile(), RUN_LENGTH_IMAGES)
    for images in parts:
        features = extract_features(images)
        for first in range(0, len(images), 16):
            sums = single_class_profile().baseline.sum_features(features.select(np.arange(first, first + 16)))
            detector.add_sums(sums, float(detector.observed_images))
    return detector


def test_profile_and_thresholds_are_finite():
    for name, value in single_class_profile().to_arrays().items():
        if value.dtype.kind == "f":
            assert np.isfinite(value).all(), name
    check = single_class_profile().verified
    assert check.images_per_alarm > RUN_LENGTH_IMAGES / 5


def test_images_like_the_reference_are_no_drift_and_no_chart_is_of_classes():
    detector = run_detector(render_shapes(640, 3)[0])
    verdict = compute_stream_verdict(detector)
    assert json.dumps(verdict.to_json(), allow_nan=False)
    assert verdict.state == "ok" and verdict.classes == {"0": 640} and verdict.runs == 1
    assert np.isfinite(detector.threshold()) and not detector.charts.classes.any()
    assert not {"class gone", "class more often"} & {chart.name for chart in verdict.charts}  # they never move


def test_change_of_light_is_found_and_its_end_too():
    images = render_shapes(640, 4)[0]
    detector = run_detector(images, (images[:160].float() * 0.7).byte())
    verdict = compute_stream_verdict(detector)
    assert (verdict.state, verdict.cause) == ("drift", "exposure")
    assert 640 < verdict.since.alarm.image_number <= 704
    detector = run_detector(images, (images[:160].float() * 0.7).byte(), render_shapes(1600, 5)[0])
    assert detector.alarm is None


@pytest.mark.parametrize(("factor", "state"), [(1.0, "ok"), (0.7, "drift")])
def test_sets_of_images_are_judged(factor, state):
    images = (render_shapes(100, 6)[0].float() * factor).byte()
    reference = predict_single_class(render_shapes(300, 1)[0])
    verdict = compute_dataset_verdict(
        single_class_profile(),
        extract_features(images),
        predict_single_class(images).features,
        reference.features,
        reference.labels,
        permutation_count=620,
    )
    assert json.dumps(verdict.to_json(), allow_nan=False)
    assert verdict.state == state and verdict.cause == ("exposure" if state == "drift" else None)
    assert "classes" not in {chart.name for chart in verdict.charts}
