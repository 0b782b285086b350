"""False alarms of simulated streams: when a stream alarms, and what its rate says of new images."""

import numpy as np
import pytest

from equipoise.drift.charts.cusum import build_cusum_parameters, initial_cusum_state
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.reference.false_alarms import FalseAlarmCheck, find_and_reset_alarms, log_spread_between
from equipoise.drift.reference.simulated_streams import sort_by_group, sum_table_rows
from equipoise.drift.reference.thresholds import block_maxima, locate_in_grid
from equipoise.proportions import Z_95
from tests.support.quick_profile import build_quick_profile


def build_state(streams):
    base = build_quick_profile().baseline
    return initial_cusum_state(
        build_cusum_parameters(base.usual), len(IMAGE_SCHEMA), base.layout.fourier_count, streams
    )


def test_stream_alarms_at_its_threshold_once_it_has_enough_images_and_begins_anew():
    calibration, state = build_quick_profile().calibration, build_state(4)  # whose values are those of the charts
    threshold = np.log(2000)
    state.scores[:, 1, 2, 5] = [threshold, threshold - 1e-9, threshold + 5, threshold + 5]
    state.weight[:] = 3.0
    ages = np.array([48.0, 48.0, 47.0, 1000.0])
    alarming, charts = find_and_reset_alarms(state, calibration, 2000.0, 16, ages)
    assert alarming.tolist() == [0, 3] and charts.tolist() == [(1 * 3 + 2) * len(IMAGE_SCHEMA) + 5] * 2
    assert ages.tolist() == [0, 64, 63, 0]
    assert not state.scores[[0, 3]].any() and (state.scores[[1, 2]].max((1, 2, 3)) > 7).all()
    assert not state.weight[[0, 3]].any() and state.weight[[1, 2]].all()


def test_estimate_extrapolates_from_samples_and_allows_for_their_spread():
    check = FalseAlarmCheck(2000.0, 100_000, 49, 500, 99, 0.2)
    estimate = check.estimate
    assert estimate.value == pytest.approx(100_000 / (49.5**2 / 99.5))
    factor = np.exp(Z_95 * np.sqrt(0.4**2 + 4 / 49.5 + 1 / 99.5))
    assert (estimate.low, estimate.high) == pytest.approx((estimate.value / factor, estimate.value * factor))
    assert check.images_per_alarm == 100_000 / 49
    assert FalseAlarmCheck(2000.0, 100_000, 0, 500, 0, 0.0).images_per_alarm == 100_000


def test_spread_is_what_counts_vary_by_beyond_chance():
    assert log_spread_between(np.array([10.0, 10.0, 10.0])) == 0
    assert log_spread_between(np.array([0.0, 20.0])) == pytest.approx(np.sqrt(200 - 10) / 10)
    assert log_spread_between(np.array([0.0, 0.0])) == 0
    assert log_spread_between(np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 3.0])) == pytest.approx(
        np.sqrt(np.var([0, 0, 0, 1, 0, 0, 0, 3], ddof=1) - 0.5) / 0.5
    )


def test_blocks_follow_each_other_in_each_stream():
    values = np.arange(8 * 2 * 3).reshape(8, 2, 3)  # four blocks of two steps
    maxima = block_maxima(values)
    assert maxima.shape == (8, 3)
    assert maxima.tolist() == values[1::2].reshape(8, 3).tolist()
    assert block_maxima(values[::-1]).tolist() == values[::-1][::2].reshape(8, 3).tolist()


def test_value_is_located_in_its_cell_of_a_grid():
    fraction, cell = locate_in_grid(np.array([1.0, 2.0, 4.0, 16.0, 100.0, 0.1]), (1.0, 4.0, 16.0))
    assert cell.tolist() == [0, 0, 1, 1, 1, 0]
    assert fraction == pytest.approx([0, 0.5, 0, 1, 1, 0])


def test_images_are_sorted_by_group():
    members, firsts, counts = sort_by_group(np.array([2, 0, 2, 0, 2]))
    assert (members.tolist(), firsts.tolist(), counts.tolist()) == ([1, 3, 0, 2, 4], [0, 2, 2], [2, 0, 3])


def test_rows_of_a_table_are_summed():
    table = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    indices = np.array([[0, 0, 3], [1, 2, 2]])
    np.testing.assert_array_equal(sum_table_rows(indices, table), table[indices].sum(1))
