from dataclasses import replace

import numpy as np
import pytest

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.drift.profiling.build_profile import build_profile_arrays, evenly_spaced_indices, fit_label_statistics
from equipoise.drift.reference.profile import ARRAY_PREFIX, ReferenceProfile
from equipoise.drift.reference.profile import profile_from_arrays as read
from tests.support.drift_data import (
    CLASSES,
    extract_shape_features,
    label_shapes,
    render_shapes,
    score_shapes,
    shapes_profile,
)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """What a bundle's file holds of a reference."""
    path = tmp_path_factory.mktemp("kept") / "reference.npz"
    np.savez(path, other=np.zeros(3), **shapes_profile().to_arrays())
    with np.load(path, allow_pickle=False) as held:
        return dict(held)


def test_a_reference_that_was_kept_gives_the_same_sums_to_the_last_bit(kept):
    again = read(kept, CLASSES, 9)
    some, _ = render_shapes(200, 70)
    shown = extract_shape_features(some)
    logits, features = (one.numpy() for one in score_shapes(some))
    anew = again.baseline.extract_features(some.numpy(), logits, features)
    np.testing.assert_array_equal(again.baseline.sum_features(anew), shapes_profile().baseline.sum_features(shown))
    assert again.to_arrays().keys() == shapes_profile().to_arrays().keys()
    for name, value in shapes_profile().to_arrays().items():
        np.testing.assert_array_equal(again.to_arrays()[name], value, name)


def test_a_reference_that_was_kept_gives_the_same_verdict(kept):
    verdicts = []
    for held in (shapes_profile(), read(kept, CLASSES, 9)):
        watch = StreamDetector.start(held, 2000.0)
        for first in range(0, 320, 16):
            some = render_shapes(16, 71 + first)[0]
            watch.add_sums(
                held.baseline.sum_features(extract_shape_features(some // 2 if first >= 160 else some)), float(first)
            )
        verdicts.append(compute_stream_verdict(watch))
    assert verdicts[0] == verdicts[1] and verdicts[0]["cause"] == "exposure"


def test_a_reference_is_no_larger_than_a_page_of_the_web(kept):
    assert sum(value.nbytes for name, value in kept.items() if name.startswith(ARRAY_PREFIX)) < 2 << 20


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: {}, "no reference to compare with (figures is missing); publish the bundle again"),
        (
            lambda held: {"other": held["other"]},
            "no reference to compare with (figures is missing); publish the bundle again",
        ),
        (
            lambda held: {name: value for name, value in held.items() if name != "drift.usual.trace"},
            "no reference to compare with (usual.trace is missing); publish the bundle again",
        ),
        (
            lambda held: {name: value for name, value in held.items() if name != "drift.directions"},
            "no reference to compare with (directions is missing); publish the bundle again",
        ),
        (
            lambda held: held | {"drift.figures": np.array([*CHARTED_FEATURES, "new"])},
            "made by another version; publish the bundle again",
        ),
        (
            lambda held: held | {"drift.directions": np.zeros((512, 128), np.float32)},
            "has 512 features and 4 classes, the model 9 features and 4 classes",
        ),
    ],
)
def test_what_is_no_reference_is_refused_in_a_sentence(kept, change, said):
    with pytest.raises(ValueError, match=r"publish the bundle again") as error:
        read(change(kept), CLASSES, 9)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_reference_for_other_classes_is_refused_in_a_sentence(kept):
    with pytest.raises(ValueError, match=r"has 9 features and 4 classes, the model 9 features and 10 classes"):
        read(kept, 10, 9)


@pytest.mark.parametrize("count", [1, 20, 99])
def test_a_reference_of_few_pictures_says_so_for_good(count):
    held = build_profile_arrays(score_shapes, label_shapes(count, 72), 1.0)
    assert [*held] == [f"{ARRAY_PREFIX}why not"]
    with pytest.raises(ValueError, match=f"^the reference has {count} images; at least 100 are needed"):
        read(held, CLASSES, 9)


@pytest.mark.parametrize("side", [1, 2, 7])
def test_pictures_of_hardly_a_pixel_are_not_watched(side):
    some = label_shapes(150, 72)
    held = build_profile_arrays(score_shapes, replace(some, pictures=some.pictures[:, :, :32, :side]), 1.0)
    assert (
        str(held[f"{ARRAY_PREFIX}why not"])
        == f"cannot monitor images of {side}x32 pixels: they are too small; at least 8 pixels a side are needed"
    )


def test_labels_are_told_from_what_pictures_were_called():
    some, labels = render_shapes(300, 73)
    shown, wrong = extract_shape_features(some), (labels + (np.arange(300) % 10 == 0)) % CLASSES
    found = fit_label_statistics(shown, wrong, shapes_profile().baseline.usual)
    np.testing.assert_allclose(found.prior, np.bincount(wrong, minlength=CLASSES) / 300)
    np.testing.assert_allclose(found.confusion.sum(0), 1)
    assert found.confusion[0, 1] == pytest.approx(np.mean(shown.predicted_classes[wrong == 1] == 0))
    scores = shapes_profile().baseline.usual.scores(shown)
    np.testing.assert_allclose(found.scores[2], scores[wrong == 2].mean(0), atol=1e-9)


def test_pictures_for_trying_are_spread_over_the_reference():
    assert evenly_spaced_indices(10, 3).tolist() == [0, 4, 9] and evenly_spaced_indices(3, 10).tolist() == [0, 1, 2]
    assert isinstance(shapes_profile(), ReferenceProfile) and shapes_profile().signatures.tried == 120
