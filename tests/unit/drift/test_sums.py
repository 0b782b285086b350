import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.drift.charts.sums import SumsLayout, quantized_sum
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile

LAYOUT = SumsLayout(class_count=3, statistic_count=2, fourier_count=4)


def pack_row(values, predicted_classes):
    """Pack a row of a few images, with the first two columns of `values` for every statistic."""
    parts = dict.fromkeys(("scores", "shifts", "low", "high"), values[:, :2])
    counts = {"all": np.array([len(values)]), "cells": np.bincount(predicted_classes, minlength=3)}
    return LAYOUT.pack(**parts, **counts, waves=values)


def test_parts_of_a_row_are_read_as_packed_and_do_not_overlap():
    row = pack_row(np.array([[0.5, -2, 3, 0.25], [1.5, 0, -1, 0]]), np.array([2, 0]))
    assert row.dtype == np.int64 and len(row) == LAYOUT.row_length == 1 + 3 + 4 * 2 + 4
    assert row.tolist()[:4] == [2, 1, 0, 1]
    np.testing.assert_array_equal(LAYOUT.read_part(row, "cells"), [1, 0, 1])
    for name in ("scores", "shifts", "low", "high"):
        np.testing.assert_array_equal(LAYOUT.read_part(row, name), [2, -2])
    np.testing.assert_array_equal(
        LAYOUT.read_part(np.stack([row, row + row]), "waves"), [[2, -2, 2, 0.25], [4, -4, 4, 0.5]]
    )


def test_each_value_is_rounded_by_itself():
    third = np.full((3, 1), 0.4 / 2**24)
    assert quantized_sum(third).tolist() == [0]  # if rounded after summing, it would be 1
    assert quantized_sum(np.array([[0.6 / 2**24], [-0.6 / 2**24]])).tolist() == [0]


def test_unobserved_images_count_as_answered_and_as_nothing_else():
    row = LAYOUT.pack_unobserved(7)
    assert LAYOUT.read_part(row, "all") == 7 and row.sum() == 7
    assert not LAYOUT.empty_row().any()


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), replicas=st.sampled_from([1, 2, 4, 8]), seed=st.integers(0, 2**32 - 1))
def test_sums_are_bit_equal_however_images_are_split_and_ordered(data, replicas, seed):
    rng = np.random.default_rng(seed)
    count = data.draw(st.integers(1, 60))
    values, predicted_classes = rng.normal(0, 1, (count, 4)) * 10.0 ** rng.integers(-8, 3), rng.integers(0, 3, count)
    order, owner = rng.permutation(count), rng.integers(0, replicas, count)
    total = LAYOUT.empty_row()
    for replica in rng.permutation(replicas):
        indices = order[owner == replica]
        cuts = np.sort(rng.integers(0, len(indices) + 1, data.draw(st.integers(0, 5))))
        for batch in np.split(indices, cuts):
            total = total + (pack_row(values[batch], predicted_classes[batch]) if len(batch) else LAYOUT.empty_row())
    np.testing.assert_array_equal(total, pack_row(values, predicted_classes))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1), replicas=st.sampled_from([1, 2, 4, 8]))
def test_sums_of_real_features_are_bit_equal_however_spread_over_replicas(seed, replicas):
    rng, base = np.random.default_rng(seed), shapes_profile().baseline
    features = extract_shape_features(render_shapes(64, seed=4)[0])
    owner = rng.integers(0, replicas, 64)
    parts = [np.flatnonzero(owner == replica)[::-1] for replica in range(replicas)]
    rows = [base.sum_features(features.select(part.tolist())) for part in parts if len(part)]
    np.testing.assert_array_equal(np.sum(rows, 0), base.sum_features(features))
