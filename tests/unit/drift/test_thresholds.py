from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from equipoise.drift.charts.baseline import FIGURES, Seen, baseline
from equipoise.drift.charts.cusum import SHIFTS, Step, charts, rules
from equipoise.drift.features.random_fourier import waves
from equipoise.drift.profiling.build_profile import looked_at
from equipoise.drift.reference.false_alarms import ASKED as FEW
from equipoise.drift.reference.false_alarms import verified
from equipoise.drift.reference.thresholds import RUNS, SIZES, STRETCH, Streams, between, tail
from tests.support.drift_data import CLASSES, known, told

ASKED = 2000.0
REFERENCES, EACH, PICTURES = 12, 12, 4096  # of streams: about 25 alarms a reference and 300 in all, if rightly set


answered = cache(told)


def nowhere(features):
    """For figures alone, which need no random features."""
    return np.zeros((len(features), 1))


@cache
def judged():
    """4,000 pictures that no reference has seen, and all that does not depend on a reference."""
    others = answered(4000, 7)
    return others, looked_at(others, nowhere, 1.0).figures


@cache
def held(seed):
    """A reference of its own, without thresholds, and 4,000 fresh pictures against it."""
    some = answered(600, seed)
    directions = waves(some.features)
    base = baseline(looked_at(some, directions, 1.0), CLASSES, directions, 1.0)
    others, figures = judged()
    seen = Seen(figures, others.logits.argmax(1), directions(others.features))
    counts = np.eye(CLASSES)[seen.classes]
    rest = seen.waves - base.usual.waves[seen.classes]
    return base.usual, others.labels, np.concatenate([counts, base.usual.scores(seen), rest], 1)


def alarms(seed, length, size, count=PICTURES):
    """How often thresholds of the shared reference are reached by streams against another; charts begin anew then."""
    usual, labels, table = held(seed)
    rng, sizes = np.random.default_rng(seed), np.full(EACH, float(size))
    state = charts(rules(usual), len(FIGURES), usual.waves.shape[1], EACH)
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
        state.step(Step(*np.split(sums, [CLASSES, CLASSES + len(FIGURES)], 1)))
        conditions = sizes, state.runs.length()
        values = known().calibration.scaled(state.values(), *conditions).max(1)
        high = values >= known().calibration.threshold(ASKED, *conditions)
        state.again(np.flatnonzero(high))
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
    found = np.array([known().calibration.threshold(one, *conditions)[0] for one in asked])
    np.testing.assert_allclose(np.diff(found), np.diff(found)[0], rtol=1e-9)
    assert 0.5 * np.log(10) < np.diff(found)[0] < 2 * np.log(10)
    assert found[0] > np.log(1e3)  # of many charts the highest is high oftener than each alone


def test_a_chart_at_its_height_is_at_the_threshold_of_all():
    calibration, conditions = known().calibration, (np.array([16.0, 100.0]), np.array([1.0, 7.0]))
    heights = calibration.heights(1e5, *conditions)
    expected = calibration.threshold(1e5, *conditions)[:, None]
    np.testing.assert_allclose(calibration.scaled(heights, *conditions), expected + 0 * heights, rtol=1e-9)
    assert heights.shape == (2, 2 * len(SHIFTS) * len(FIGURES) + 5)


def test_between_two_sizes_a_table_is_read_by_the_logarithm_and_beyond_its_ends_as_at_them():
    table = np.arange(12.0).reshape(3, 4, 1)
    runs = np.array([RUNS[0]])
    read = [between(table, np.array([size]), runs)[0, 0] for size in (1, *SIZES, 32, 1e6)]
    np.testing.assert_allclose(read, [0, 0, 4, 8, 2, 8])
    both = between(table, np.array([32.0]), np.array([np.sqrt(RUNS[1] * RUNS[2])]))
    np.testing.assert_allclose(both, [[2 + 1.5]])


@pytest.mark.parametrize("rate", [0.3, 2.0])
def test_the_tail_of_what_falls_off_exponentially_is_known(rate):
    # a value is above x once in exp(4 + rate * x) pictures
    rng = np.random.default_rng(0)
    largest = (-np.log(-np.log(rng.random((20_000, 1)))) + np.log(STRETCH) - 4) / rate
    offset, slope = tail(largest)
    assert slope[0] == pytest.approx(rate, rel=0.1) and slope[0] < rate  # too flat rather than too steep
    start = np.quantile(largest, 0.9)
    assert offset[0] + slope[0] * start == pytest.approx(4 + rate * start, abs=0.1)


@pytest.mark.parametrize("length", [1.0, 10.0])
def test_streams_come_in_runs_of_the_length_asked_and_in_the_shares_of_the_reference(length):
    some = answered(600, 20)
    base, rng, labels = held(20)[0], np.random.default_rng(0), some.labels
    seen = looked_at(some, waves(some.features), 1.0)
    streams = Streams.drawn(seen, labels, base, length, rng)
    first, second = streams.places(300, rng), streams.places(300, rng)
    shown = labels[np.concatenate([first, second], 1)]
    share = np.bincount(labels) / 600
    alike = (shown[:, 1:] == shown[:, :-1]).mean()
    by_chance = (share**2).sum()
    assert alike == pytest.approx(1 - (1 - by_chance) / length, abs=0.02)
    np.testing.assert_allclose(np.bincount(shown.ravel()) / shown.size, share, atol=0.03)
    assert (shown[:, 299] == shown[:, 300]).mean() == pytest.approx(1 - (1 - by_chance) / length, abs=0.1)


def test_false_alarms_are_counted_on_pictures_kept_apart():
    base, apart = known().baseline, answered(4000, 7)
    found = verified(base.usual, known().calibration, looked_at(apart, base.waves, 1.0), apart.labels)
    assert 0.5 * FEW < found.realised < 2 * FEW and found.alarms > 50
    assert known().verified is not None and known().verified.alarms > found.alarms / 4
    loose = replace(known().calibration, joint_offset=known().calibration.joint_offset + 1)
    more = verified(base.usual, loose, looked_at(apart, base.waves, 1.0), apart.labels)
    assert more.alarms > 1.8 * found.alarms  # of thresholds for a run length less than half as long
