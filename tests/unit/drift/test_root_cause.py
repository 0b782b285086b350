"""Boundaries between a new class and a change of the images, each from both sides."""

import math
from dataclasses import replace

import numpy as np
import pytest

from equipoise.drift.diagnosis.root_cause import (
    diagnose_window,
    has_outlier_subset,
    has_unexplained_distance,
    is_significant,
    outlier_share,
)
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.statistic_schema import DISTANCE_COLUMN, OUTLIER_COLUMN
from tests.support.drift_data import shapes_profile

CLASS_SHARES = np.array([0.4, 0.3, 0.2, 0.1])


def build_window(distance=0.0, share=0.0, images=200):
    """Build a window with a mean distance in standard deviations and a share of images unlike the reference."""
    profile = shapes_profile()
    scores, shifts = np.zeros(len(IMAGE_SCHEMA)), np.zeros(len(IMAGE_SCHEMA))
    scores[DISTANCE_COLUMN] = distance
    shifts[OUTLIER_COLUMN] = share - CLASS_SHARES @ profile.baseline.usual.mean[:, OUTLIER_COLUMN]
    return Window(profile, images * CLASS_SHARES, scores, shifts)


@pytest.mark.parametrize("images", [1, 1000])
def test_outlier_share_is_the_usual_one_of_the_classes_and_its_shift(images):
    assert outlier_share(build_window(share=0.3, images=images)) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("share", "distance", "has_outliers"),
    [
        (0.0205, 0.1, True),
        (0.0195, 0.1, False),
        (0.59, 1.0, True),
        (0.61, 1.0, False),
        (0.3, 2.35, True),  # 8 standard deviations per share of outliers
        (0.3, 2.45, False),
        (0.3, 1e-3, True),
        (0.3, 0.0, False),
        (0.3, -0.1, False),
    ],
)
def test_some_images_are_outliers_and_the_others_as_usual(share, distance, has_outliers):
    assert has_outlier_subset(build_window(distance, share)) == has_outliers


@pytest.mark.parametrize("distance", [0.3, 3.0])
def test_distance_is_unexplained_from_a_third_of_it_and_three_standard_errors_above_a_bound(distance):
    window = build_window(distance)
    bound = max(0.15 + 3 / math.sqrt(window.effective_sample_size), distance / 3)
    for surplus, is_unexplained in ((0.99 * bound, False), (1.01 * bound, True)):
        residual = replace(window.feature_shift(), scores=build_window(surplus).scores)
        assert has_unexplained_distance(window, residual) == is_unexplained


@pytest.mark.parametrize("sign", [-1, 1])
def test_mean_is_significant_above_four_and_a_half_standard_errors(sign):
    error = 1 / math.sqrt(build_window().effective_sample_size)
    assert [is_significant(build_window(sign * z * error)) for z in (4.45, 4.55)] == [False, True]


@pytest.mark.parametrize(("classes_moved", "cause"), [(True, "label shift"), (False, "features")])
def test_images_that_look_as_before_are_a_label_shift_only_where_classes_have_moved(classes_moved, cause):
    assert diagnose_window(build_window(), classes_moved).name == cause
