from dataclasses import replace

import numpy as np
import pytest
import torch

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.profiling.build_profile import (
    CORRUPTED_IMAGES_RANGE,
    affordable_image_count,
    build_profile_arrays,
    evenly_spaced_indices,
)
from equipoise.drift.profiling.reference_examples import fit_label_statistics
from equipoise.drift.reference.profile import ARRAY_PREFIX, ReferenceProfile, profile_from_arrays
from equipoise.drift.reference.simulated_streams import LabelledFeatures
from tests.support.drift_data import (
    CLASSES,
    extract_shape_features,
    label_shapes,
    render_shapes,
    score_shapes,
    shapes_profile,
)
from tests.support.errors import raises_code


@pytest.fixture(scope="module")
def stored_arrays(tmp_path_factory):
    """Return the arrays of a bundle's reference.npz, read from a file."""
    path = tmp_path_factory.mktemp("bundle") / "reference.npz"
    np.savez(path, other=np.zeros(3), **shapes_profile().to_arrays())
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def test_stored_profile_gives_bit_equal_sums(stored_arrays):
    profile = profile_from_arrays(stored_arrays, [*"0123"], 9)
    images, _ = render_shapes(200, 70)
    expected = extract_shape_features(images)
    logits, features = (output.numpy() for output in score_shapes(images))
    extracted = profile.baseline.extract_features(images.numpy(), logits, features)
    np.testing.assert_array_equal(
        profile.baseline.sum_features(extracted), shapes_profile().baseline.sum_features(expected)
    )
    assert profile.to_arrays().keys() == shapes_profile().to_arrays().keys()
    for name, value in shapes_profile().to_arrays().items():
        np.testing.assert_array_equal(profile.to_arrays()[name], value, name)


def test_stored_profile_gives_the_same_verdict(stored_arrays):
    verdicts = []
    for profile in (shapes_profile(), profile_from_arrays(stored_arrays, [*"0123"], 9)):
        detector = StreamDetector.start(profile, 2000.0)
        for first in range(0, 320, 16):
            images = render_shapes(16, 71 + first)[0]
            detector.add_sums(
                profile.baseline.sum_features(extract_shape_features(images // 2 if first >= 160 else images)),
                float(first),
            )
        verdicts.append(compute_stream_verdict(detector))
    assert verdicts[0] == verdicts[1] and verdicts[0].cause == "exposure"


def test_profile_published_with_more_arrays_is_loaded(stored_arrays):
    clean = stored_arrays["drift.signatures.clean"]
    older = stored_arrays | {
        "confusion": np.eye(CLASSES),
        "temperature": np.array(1.0),
        "drift.signatures.confidence": stored_arrays["drift.signatures.accuracy"],
        "drift.signatures.clean": np.append(clean, 0.9),  # with the mean confidence
    }
    images, _ = render_shapes(200, 70)
    window = shapes_profile().baseline.sum_features(extract_shape_features(images // 2))
    verdicts = []
    for arrays in (stored_arrays, older):
        detector = StreamDetector.start(profile_from_arrays(arrays, [*"0123"], 9), 2000.0)
        for step in range(10):
            detector.add_sums(window, float(step))
        verdicts.append(compute_stream_verdict(detector))
    assert verdicts[0] == verdicts[1] and verdicts[0].state == "drift"


def test_stored_profile_is_smaller_than_2_mib(stored_arrays):
    assert sum(value.nbytes for name, value in stored_arrays.items() if name.startswith(ARRAY_PREFIX)) < 2 << 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: {}, "no reference to compare with (figures is missing); publish the bundle again"),
        (
            lambda arrays: {"other": arrays["other"]},
            "no reference to compare with (figures is missing); publish the bundle again",
        ),
        (
            lambda arrays: {name: value for name, value in arrays.items() if name != "drift.usual.trace"},
            "no reference to compare with (usual.trace is missing); publish the bundle again",
        ),
        (
            lambda arrays: {name: value for name, value in arrays.items() if name != "drift.directions"},
            "no reference to compare with (directions is missing); publish the bundle again",
        ),
        (
            lambda arrays: arrays | {"drift.figures": np.array([*IMAGE_SCHEMA.names, "new"])},
            "made by another version; publish the bundle again",
        ),
        (
            lambda arrays: arrays | {"drift.directions": np.zeros((512, 128), np.float32)},
            "has 512 features and 4 classes, the model 9 features and 4 classes",
        ),
    ],
)
def test_unusable_arrays_are_refused_in_one_sentence(stored_arrays, change, message):
    with raises_code("reference-unusable", "publish the bundle again") as error:
        profile_from_arrays(change(stored_arrays), [*"0123"], 9)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_profile_for_other_classes_is_refused_in_one_sentence(stored_arrays):
    with raises_code("reference-unusable", "9 features and 4 classes", "10 classes"):
        profile_from_arrays(stored_arrays, [*"0123456789"], 9)


@pytest.mark.parametrize("count", [1, 20, 99])
def test_reference_of_few_images_stores_only_the_reason_for_refusing_it(count):
    arrays = build_profile_arrays(score_shapes, label_shapes(count, 72), 1.0)
    assert [*arrays] == [f"{ARRAY_PREFIX}why not"]
    with raises_code("reference-unusable", count, 100):
        profile_from_arrays(arrays, [*"0123"], 9)


@pytest.mark.parametrize("side", [1, 2, 7])
def test_images_of_few_pixels_are_not_monitored(side):
    outputs = label_shapes(150, 72)
    arrays = build_profile_arrays(score_shapes, replace(outputs, pictures=outputs.pictures[:, :, :32, :side]), 1.0)
    assert (
        str(arrays[f"{ARRAY_PREFIX}why not"])
        == f"cannot monitor images of {side}x32 pixels: they are too small; at least 8 pixels a side are needed"
    )


def test_label_statistics_are_by_true_label_where_predictions_differ():
    images, labels = render_shapes(300, 73)
    features, true_labels = extract_shape_features(images), (labels + (np.arange(300) % 10 == 0)) % CLASSES
    statistics = fit_label_statistics(LabelledFeatures(features, true_labels), shapes_profile().baseline.usual, CLASSES)
    np.testing.assert_allclose(statistics.prior, np.bincount(true_labels, minlength=CLASSES) / 300)
    np.testing.assert_allclose(statistics.confusion.sum(0), 1)
    assert statistics.confusion[0, 1] == pytest.approx(np.mean(features.predicted_classes[true_labels == 1] == 0))
    scores = shapes_profile().baseline.usual.scores(features)
    np.testing.assert_allclose(statistics.scores[2], scores[true_labels == 2].mean(0), atol=1e-9)


def test_images_for_trying_corruptions_are_spread_evenly_over_the_reference():
    assert evenly_spaced_indices(10, 3).tolist() == [0, 4, 9] and evenly_spaced_indices(3, 10).tolist() == [0, 1, 2]
    assert isinstance(shapes_profile(), ReferenceProfile) and shapes_profile().signatures.tried == 120


def test_changes_are_tried_on_as_many_images_as_a_fast_model_allows():
    images = torch.zeros(8, 1, 8, 8, dtype=torch.uint8)
    assert affordable_image_count(len, images) == CORRUPTED_IMAGES_RANGE[1]
