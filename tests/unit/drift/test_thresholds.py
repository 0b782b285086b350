from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from equipoise.drift.charts.baseline import CHARTED_FEATURES, ImageFeatures, fit_baseline
from equipoise.drift.charts.cusum import SHIFT_SIZES, StepSums, build_cusum_parameters, initial_cusum_state
from equipoise.drift.features.random_fourier import fit_random_features
from equipoise.drift.profiling.build_profile import extract_features
from equipoise.drift.reference.false_alarms import CHECK_RUN_LENGTH as FEW
from equipoise.drift.reference.false_alarms import count_false_alarms
from equipoise.drift.reference.thresholds import (
    BLOCK_IMAGES,
    CLASS_RUN_LENGTHS,
    STEP_SIZES,
    SimulatedStreams,
    fit_exponential_tail,
    interpolate_table,
)
from tests.support.drift_data import CLASSES, label_shapes, shapes_profile

ASKED = 2000.0
REFERENCES, EACH, PICTURES = 12, 12, 4096  # of streams: about 25 alarms a reference and 300 in all, if rightly set


answered = cache(label_shapes)


def nowhere(features):
    """For figures alone, which need no random features."""
    return np.zeros((len(features), 1))


@cache
def judged():
    """4,000 pictures that no reference has seen, and all that does not depend on a reference."""
    others = answered(4000, 7)
    return others, extract_features(others, nowhere, 1.0).statistics


@cache
def held(seed):
    """A reference of its own, without thresholds, and 4,000 fresh pictures against it."""
    some = answered(600, seed)
    directions = fit_random_features(some.features)
    base = fit_baseline(extract_features(some, directions, 1.0), CLASSES, directions, 1.0)
    others, figures = judged()
    seen = ImageFeatures(figures, others.logits.argmax(1), directions(others.features))
    counts = np.eye(CLASSES)[seen.predicted_classes]
    rest = seen.fourier_features - base.usual.waves[seen.predicted_classes]
    return base.usual, others.labels, np.concatenate([counts, base.usual.scores(seen), rest], 1)


def alarms(seed, length, size, count=PICTURES):
    """How often thresholds of the shared reference are reached by streams against another; charts begin anew then."""
    usual, labels, table = held(seed)
    rng, sizes = np.random.default_rng(seed), np.full(EACH, float(size))
    state = initial_cusum_state(build_cusum_parameters(usual), len(CHARTED_FEATURES), usual.waves.shape[1], EACH)
    members = [np.flatnonzero(labels == one) for one in range(CLASSES)]
    shown, found = rng.integers(0, CLASSES, EACH), 0
    for _ in range(count // size):
        drawn, begins = rng.integers(0, CLASSES, (EACH, size)), rng.random((EACH, size)) < 1 / length
        drawn = np.concatenate([shown[:, None], drawn], 1)
        since = np.maximum.accumulate(np.where(begins, np.arange(1, size + 1), 0), 1)
        called = np.take_along_axis(drawn, since, 1)
        shown = called[:, -1]
        places = np.choose(called, [rng.choice(one, called.shape) for one in members])
        sums = table[places].sum(1)
        state.update(StepSums(*np.split(sums, [CLASSES, CLASSES + len(CHARTED_FEATURES)], 1)))
        conditions = sizes, state.runs.mean_run_length()
        values = shapes_profile().calibration.scale_values(state.values(), *conditions).max(1)
        high = values >= shapes_profile().calibration.threshold(ASKED, *conditions)
        state.reset(np.flatnonzero(high))
        found += int(high.sum())
    return found


@pytest.mark.parametrize("length", [1.0, 20.0])
@pytest.mark.parametrize("size", [16, 64])
def test_a_false_alarm_comes_about_as_rarely_as_asked(size, length):
    found = np.array([alarms(seed, length, size) for seed in range(20, 20 + REFERENCES)])
    run_lengths = EACH * PICTURES / np.maximum(found, 1)
    assert 0.5 * ASKED < run_lengths.mean() < 1.7 * ASKED  # found: 0.6 to 0.9, least with large steps


@pytest.mark.parametrize("size", [16.0, 40.0, 256.0])
def test_thresholds_grow_with_the_logarithm_of_the_run_length_asked(size):
    asked = np.array([1e3, 1e4, 1e5, 1e6])
    conditions = np.array([size]), np.array([5.0])
    found = np.array([shapes_profile().calibration.threshold(one, *conditions)[0] for one in asked])
    np.testing.assert_allclose(np.diff(found), np.diff(found)[0], rtol=1e-9)
    assert 0.5 * np.log(10) < np.diff(found)[0] < 2 * np.log(10)
    assert found[0] > np.log(1e3)  # of many charts the highest is high oftener than each alone


def test_a_chart_at_its_height_is_at_the_threshold_of_all():
    calibration, conditions = shapes_profile().calibration, (np.array([16.0, 100.0]), np.array([1.0, 7.0]))
    heights = calibration.chart_thresholds(1e5, *conditions)
    expected = calibration.threshold(1e5, *conditions)[:, None]
    np.testing.assert_allclose(calibration.scale_values(heights, *conditions), expected + 0 * heights, rtol=1e-9)
    assert heights.shape == (2, 2 * len(SHIFT_SIZES) * len(CHARTED_FEATURES) + 5)


def test_between_two_sizes_a_table_is_read_by_the_logarithm_and_beyond_its_ends_as_at_them():
    table = np.arange(12.0).reshape(3, 4, 1)
    runs = np.array([CLASS_RUN_LENGTHS[0]])
    read = [interpolate_table(table, np.array([size]), runs)[0, 0] for size in (1, *STEP_SIZES, 32, 1e6)]
    np.testing.assert_allclose(read, [0, 0, 4, 8, 2, 8])
    both = interpolate_table(table, np.array([32.0]), np.array([np.sqrt(CLASS_RUN_LENGTHS[1] * CLASS_RUN_LENGTHS[2])]))
    np.testing.assert_allclose(both, [[2 + 1.5]])


@pytest.mark.parametrize("rate", [0.3, 2.0])
def test_the_tail_of_what_falls_off_exponentially_is_known(rate):
    # a value is above x once in exp(4 + rate * x) pictures
    rng = np.random.default_rng(0)
    largest = (-np.log(-np.log(rng.random((20_000, 1)))) + np.log(BLOCK_IMAGES) - 4) / rate
    offset, slope = fit_exponential_tail(largest)
    assert slope[0] == pytest.approx(rate, rel=0.1) and slope[0] < rate  # too flat rather than too steep
    start = np.quantile(largest, 0.9)
    assert offset[0] + slope[0] * start == pytest.approx(4 + rate * start, abs=0.1)


@pytest.mark.parametrize("length", [1.0, 10.0])
def test_streams_come_in_runs_of_the_length_asked_and_in_the_shares_of_the_reference(length):
    some = answered(600, 20)
    base, rng, labels = held(20)[0], np.random.default_rng(0), some.labels
    seen = extract_features(some, fit_random_features(some.features), 1.0)
    streams = SimulatedStreams.from_bootstrap(seen, labels, base, length, rng)
    first, second = streams.draw_image_indices(300, rng), streams.draw_image_indices(300, rng)
    shown = labels[np.concatenate([first, second], 1)]
    share = np.bincount(labels) / 600
    alike = (shown[:, 1:] == shown[:, :-1]).mean()
    by_chance = (share**2).sum()
    assert alike == pytest.approx(1 - (1 - by_chance) / length, abs=0.02)
    np.testing.assert_allclose(np.bincount(shown.ravel()) / shown.size, share, atol=0.03)
    assert (shown[:, 299] == shown[:, 300]).mean() == pytest.approx(1 - (1 - by_chance) / length, abs=0.1)


def test_false_alarms_are_counted_on_pictures_kept_apart():
    base, apart = shapes_profile().baseline, answered(4000, 7)
    found = count_false_alarms(
        base.usual, shapes_profile().calibration, extract_features(apart, base.random_fourier, 1.0), apart.labels
    )
    assert 0.5 * FEW < found.images_per_alarm < 2 * FEW and found.alarms > 50
    assert shapes_profile().verified is not None and shapes_profile().verified.alarms > found.alarms / 4
    loose = replace(shapes_profile().calibration, joint_offset=shapes_profile().calibration.joint_offset + 1)
    more = count_false_alarms(base.usual, loose, extract_features(apart, base.random_fourier, 1.0), apart.labels)
    assert more.alarms > 1.8 * found.alarms  # of thresholds for a run length less than half as long
