"""Scaling of columns by a reference, and columns of a table as numbers and categories."""

import numpy as np
import pytest

from equipoise.drift.features.column_scaling import MAX_ABS_Z, fit_column, fit_column_scaling
from equipoise.drift.features.random_fourier import fit_random_features, median_distance, squared_distances
from equipoise.drift.features.table_columns import category_values, is_missing, numeric_values, parse_column
from equipoise.drift.features.table_stats import frequent_categories
from equipoise.drift.features.text_stats import fit_text_encoder
from tests.support.errors import raises_code


def test_extremes_of_a_thousandth_at_each_end_are_pulled_in():
    values = np.arange(1001.0)
    inner = np.clip(values, 1, 999)
    assert fit_column(values) == pytest.approx((500, inner.std(), False))
    values[-1] = 1e9
    assert fit_column(values) == pytest.approx((500, inner.std(), False))


def test_column_of_two_values_keeps_its_rare_one():
    values = np.zeros(10_000)
    values[7] = 1.0
    assert fit_column(values) == pytest.approx((1e-4, values.std(), True))
    assert fit_column(np.array([1.0, 2, 3]))[2] is False


def test_constant_column_has_a_scale_of_one():
    assert fit_column(np.full(5, 3.0)) == (3.0, 1.0, True) and fit_column(np.zeros(0)) == (0.0, 1.0, True)
    assert fit_column(np.array([0.0, 1e-6]))[1] == pytest.approx(5e-7)  # small is not constant
    assert fit_column(np.array([1e6, 1e6 + 1e-4]))[1] == 1.0  # but rounding is


def test_values_are_standardized_up_to_a_limit_and_missing_ones_are_the_mean():
    scaling = fit_column_scaling(np.array([[0.0, 5.0], [2.0, np.nan], [4.0, 5.0]]))
    rows = scaling.standardize([[2.0, np.nan], [1e300, 6.0], [-np.inf, 5.0]])
    assert rows.tolist() == [[0, 0], [MAX_ABS_Z, 1], [-MAX_ABS_Z, 0]] and MAX_ABS_Z == 10


def test_missing_values_of_columns():
    assert all(map(is_missing, (None, "", float("nan"), np.nan))) and not any(map(is_missing, ("0", 0, " ", "nan")))
    columns = {"x": [1, np.inf, -np.inf, np.nan], "c": [1, None, "", np.nan, "b"], "words": ["a"]}
    np.testing.assert_array_equal(numeric_values(columns, "x"), [1, np.nan, np.nan, np.nan])
    assert category_values(columns, "c").tolist() == ["1", "", "", "", "b"]
    with raises_code("dataset-invalid", "'words'"):
        numeric_values(columns, "words")
    with raises_code("dataset-invalid", "'gone'"):
        category_values(columns, "gone")


def test_cells_are_numbers_where_all_of_them_are():
    np.testing.assert_array_equal(parse_column([" 1 ", "", "  ", "-2e3"]), [1, np.nan, np.nan, -2000])
    assert parse_column([" 1 ", "", "b "]).tolist() == ["1", "", "b"]


def test_categories_of_one_row_in_a_hundred_are_frequent():
    values = np.array(["b"] * 2 + ["a"] * 2 + ["c"] * 3 + [""] * 193, dtype=object)
    assert frequent_categories(values) == ("c", "a", "b")  # 2 of 200, missing ones included
    assert frequent_categories(np.append(values, "")) == ("c",)
    many = np.array([letter for index, letter in enumerate("abcdefghij") for _ in range(10 + index)], dtype=object)
    assert frequent_categories(many) == tuple("jihgfedc")


def test_common_characters_are_the_fewest_that_make_up_enough():
    assert fit_text_encoder(["a" * 98 + "b" + "c"]).common_characters == {"a", "b"}
    assert fit_text_encoder(["a" * 99 + "b"]).common_characters == {"a"}
    assert fit_text_encoder(["b" * 50 + "a" * 50]).common_characters == {"a", "b"}


def test_width_of_the_kernel_is_the_median_distance():
    points = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])
    distances = np.linalg.norm(points[:, None] - points, axis=2)
    np.testing.assert_allclose(squared_distances(points, points), distances**2, atol=1e-12)
    assert median_distance(points) == pytest.approx(np.median(distances[np.triu_indices(3, 1)]))
    assert median_distance(points[:1]) == median_distance(np.zeros((4, 2))) == 1
    line = np.arange(5000.0)[:, None]  # of which at most 500 are compared
    assert median_distance(line) == pytest.approx(5000 * (1 - np.sqrt(0.5)), rel=0.01)


def test_directions_are_as_wide_as_the_reference_and_features_have_length_one():
    rng = np.random.default_rng(0)
    reference = rng.normal(0, 3, (200, 5))
    narrow, wide = fit_random_features(reference), fit_random_features(10 * reference)
    np.testing.assert_allclose(narrow.directions, 10 * wide.directions, rtol=1e-5)
    assert narrow.directions.shape == (5, 128) and narrow.directions.dtype == np.float32
    assert (fit_random_features(reference, seed=1).directions != narrow.directions).any()
    features = narrow(reference)
    assert features.shape == (200, 256)
    np.testing.assert_allclose((features**2).sum(1), 1, rtol=1e-5)
    kernel = features[:50] @ features[:50].T
    expected = np.exp(-squared_distances(reference[:50], reference[:50]) / (2 * median_distance(reference) ** 2))
    assert np.abs(kernel - expected).max() < 0.35 and np.abs(kernel - expected).mean() < 0.08
