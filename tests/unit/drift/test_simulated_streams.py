"""Streams on which thresholds are calibrated: what they show, with one condition and with several."""

import numpy as np
import pytest

from equipoise.drift.charts.cell_statistics import fit_cell_statistics
from equipoise.drift.profiling.build_profile import extract_features
from equipoise.drift.profiling.reference_examples import concat_conditions
from equipoise.drift.reference.simulated_streams import (
    REFERENCE_COUNT,
    STREAM_COUNT,
    LabelledFeatures,
    SimulatedStreams,
    bootstrap_images,
    single_conditions,
)
from tests.support.drift_conditions import label_condition, two_lights_profile
from tests.support.drift_data import CLASSES


@pytest.fixture(scope="module")
def images():
    """Return 300 images in plain light and 200 in warm light, with the condition that each comes from."""
    base, groups = two_lights_profile().baseline, [label_condition("plain", 300, 50), label_condition("warm", 200, 51)]
    features = concat_conditions([extract_features(group, base.random_fourier, 1.0) for group in groups])
    labels = np.concatenate([group.labels for group in groups])
    return LabelledFeatures(base.assign_conditions(features), labels, features.conditions)


def draw_streams(images, run_length, steps=20):
    """Return (streams, images) indices of images drawn from bootstrap references."""
    rng = np.random.default_rng(0)
    statistics = fit_cell_statistics(images.features, CLASSES, 2)
    streams = SimulatedStreams.from_bootstrap(images, statistics, run_length, rng)
    return np.concatenate([streams.draw_image_indices(16, rng) for _ in range(steps)], 1)


@pytest.mark.parametrize("condition_count", [1, 2, 3, 5])
def test_streams_compared_with_each_reference_are_of_all_kinds(condition_count):
    kinds = single_conditions(STREAM_COUNT, condition_count)
    assert {*kinds.tolist()} == {*range(-1, condition_count)}
    assert np.ptp(np.bincount(kinds + 1)) <= 0.1 * STREAM_COUNT
    for reference in range(REFERENCE_COUNT):
        assert len({*kinds[reference::REFERENCE_COUNT].tolist()}) == condition_count + 1


@pytest.mark.parametrize("run_length", [1.0, 20.0])
def test_streams_show_one_condition_alone_or_mix_all_in_runs_of_one_condition_and_class(images, run_length):
    indices, kinds = draw_streams(images, run_length), single_conditions(STREAM_COUNT, 2)
    origins, labels = images.origins[indices], images.labels[indices]
    for condition in (0, 1):
        assert (origins[kinds == condition] == condition).all()
    mixed_origins, mixed_labels = origins[kinds == -1], labels[kinds == -1]
    assert (mixed_origins == 1).mean() == pytest.approx(200 / 500, abs=0.05)
    is_alike = (np.diff(mixed_origins) == 0) & (np.diff(mixed_labels) == 0)
    by_chance = (np.bincount(images.run_groups) ** 2).sum() / 500**2
    assert is_alike.mean() == pytest.approx(1 - (1 - by_chance) / run_length, abs=0.02)


def test_images_of_single_conditions_are_drawn_alike(images):
    indices, kinds = draw_streams(images, 1.0), single_conditions(STREAM_COUNT, 2)
    counts = np.bincount(indices[kinds == 1].ravel(), minlength=500)
    assert not counts[:300].any() and counts[300:].min() > 0.6 * counts[300:].mean()
    assert counts[300:].max() < 1.5 * counts[300:].mean()


def test_bootstrap_keeps_the_number_of_images_of_each_cell(images):
    drawn = bootstrap_images(images.features, np.random.default_rng(1))
    np.testing.assert_array_equal(np.bincount(drawn.cells), np.bincount(images.features.cells))
    assert len(np.unique(drawn.statistics[:, 0])) < 0.7 * 500
