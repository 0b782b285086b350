"""Columns of a table: features of numbers, booleans and dates, codes of texts, and values that are refused."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.tables.columns import TableColumn, parse_date, parse_numbers
from tests.support.errors import raises_code

AGE = TableColumn(name="age", kind="number", mean=40.0, scale=10.0)
AGE_OR_MISSING = TableColumn(name="age", kind="number", mean=40.0, scale=10.0, has_missing=True)
CITY = TableColumn(name="city", kind="category", categories=("Bern", "Ulm"))


def test_numbers_are_standardized_and_missing_ones_are_the_mean():
    assert AGE.encode_numbers([50, 20.0, None, Decimal(40), np.int64(41)]).tolist() == [[1], [-2], [0], [0], [0.1]]
    assert AGE.feature_names == ("age",)


def test_missing_numbers_are_marked_where_the_training_split_has_some():
    assert AGE_OR_MISSING.encode_numbers([50, None, math.nan]).tolist() == [[1, 0], [0, 1], [0, 1]]
    assert AGE_OR_MISSING.feature_names == ("age", "age is missing")


@given(st.lists(st.none() | st.floats(-1e30, 1e30), min_size=1))
def test_arrays_and_objects_are_encoded_alike(values):
    array = np.array([math.nan if value is None else value for value in values])
    for column in (AGE, AGE_OR_MISSING):
        features = column.encode_numbers(values)
        assert features.shape == (len(values), len(column.feature_names))
        assert np.array_equal(features, column.encode_numbers(array))
        assert np.isfinite(features).all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300, 10**400, "41", "", True, np.True_, [1], {}])
def test_a_value_that_is_no_usable_number_is_refused_with_its_row_and_column(value):
    with raises_code("row-invalid", "row 3", "'age'"):
        AGE.encode_numbers([1, None, value])


def test_a_long_text_is_cut_in_the_message():
    with raises_code("row-invalid") as raised:
        AGE.encode_numbers(["x" * 10_000])
    assert len(str(raised.value)) < 300


def test_booleans_are_zero_and_one():
    column = TableColumn(name="paid", kind="boolean", mean=0.5, scale=0.5)
    assert column.encode_numbers([True, False, np.True_, None]).tolist() == [[1], [-1], [1], [0]]
    for value in (1, 0.0, "true"):
        with raises_code("row-invalid", "true or false"):
            column.encode_numbers([value])


@pytest.mark.parametrize(
    ("value", "days"),
    [
        ("1970-01-02", 1),
        (date(1969, 12, 31), -1),
        ("1970-01-01T12:00", 0.5),
        ("1970-01-01 12:00:00Z", 0.5),
        (datetime(1970, 1, 1, 6, tzinfo=UTC), 0.25),
        (datetime(1970, 1, 1, 6), 0.25),  # taken for UTC
        (datetime(1970, 1, 1, 6, tzinfo=timezone(timedelta(hours=6))), 0),
        ("2026-11-25", 20782),
    ],
)
def test_dates_are_days_since_1970(value, days):
    assert parse_date(value) == days


@pytest.mark.parametrize("value", [20782, "yesterday", "2026-13-01", True])
def test_a_value_that_is_no_date_is_refused(value):
    with raises_code("row-invalid", "a date"):
        parse_numbers("day", "date", [value])


def test_texts_have_the_places_of_their_categories_and_others_have_none():
    assert CITY.encode_categories(["Ulm", "Bern", None, "Linz", "ulm"]).tolist() == [2, 1, 0, 0, 0]


@pytest.mark.parametrize("value", [1, True, math.nan, ["Ulm"]])
def test_a_value_that_is_no_text_is_refused(value):
    with raises_code("row-invalid", "row 2", "'city'", "a text"):
        CITY.encode_categories(["Ulm", value])


def test_value_is_shown_up_to_sixty_characters():
    for length, shown in ((49, f"the text '{'x' * 49}' where"), (50, f"the text '{'x' * 50}... where")):
        with raises_code("row-invalid", shown):
            AGE.encode_numbers(["x" * length])


def test_row_of_an_array_is_named_too():
    with raises_code("row-invalid", "row 2", "inf", "not too large"):
        AGE.encode_numbers(np.array([1.0, math.inf, math.nan]))
