"""The drift reference of a bundle, and verdicts against it, stay what they were when bundles were published."""

import numpy as np

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.features.image_stats import image_statistics
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile
from tests.support.recorded import assert_as_recorded


def test_reference_profile_is_as_recorded():
    assert_as_recorded("drift-profile", shapes_profile().to_arrays())


def test_image_statistics_are_as_recorded():
    images = render_shapes(8, 11)[0].numpy()
    grey, wide = images[:, :1], np.repeat(images, 3, axis=3)[:, :, 2:]
    statistics = {name: image_statistics(values) for name, values in (("colour", images), ("grey", grey), ("w", wide))}
    assert_as_recorded("image-statistics", statistics, atol=1e-4)


def test_charts_and_verdict_of_a_stream_are_as_recorded():
    images = render_shapes(1280, 12)[0]
    images[640:] = (images[640:].float() * 0.85).byte()
    features = extract_shape_features(images)
    detector = StreamDetector.start(shapes_profile(), 10_000)
    heights = []
    for start in range(0, len(images), 16):
        detector.add_sums(shapes_profile().baseline.sum_features(features.select([*range(start, start + 16)])), start)
        heights.append(detector.values())
    verdict = compute_stream_verdict(detector)
    effect = verdict.effects[0]
    assert_as_recorded(
        "drift-stream",
        {
            "heights": np.stack(heights),
            "threshold": detector.threshold(),
            "cause": verdict.cause,
            "effect": [effect.value, effect.low, effect.high, effect.explained],
            "accuracy": [verdict.accuracy.value, verdict.accuracy.low, verdict.accuracy.high],
            "images since": verdict.since.images_ago,
        },
        rtol=5e-3,
        atol=1e-3,
    )
