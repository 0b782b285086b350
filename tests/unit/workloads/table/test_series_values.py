"""Kinds and values of columns as pandas reads them."""

from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from equipoise.workloads.table.series_values import read_series
from tests.support.errors import raises_code

NAN = float("nan")


@pytest.mark.parametrize(
    ("series", "kind", "expected"),
    [
        (pd.Series([1, 2]), "number", [1, 2]),
        (pd.Series([1.5, None]), "number", [1.5, NAN]),
        (pd.Series([1, None], dtype="Int64"), "number", [1, NAN]),
        (pd.Series([Decimal("1.5"), None], dtype=object), "number", [1.5, NAN]),
        (pd.Series([None, None], dtype="float64"), "number", [NAN, NAN]),
        (pd.Series([2**70, 1], dtype=object), "number", [2.0**70, 1]),
        (pd.Series([True, False]), "boolean", [1, 0]),
        (pd.Series([True, None], dtype="boolean"), "boolean", [1, NAN]),
        (pd.Series([True, None], dtype=object), "boolean", [1, NAN]),
        (pd.Series(["1970-01-02", None]), "date", [1, NAN]),
        (pd.Series(["1970-01-02T12:00", "1970-01-01"]), "date", [1.5, 0]),
        (pd.to_datetime(pd.Series(["1970-01-02", None])), "date", [1, NAN]),
        (pd.Series(pd.to_datetime(["1970-01-01T06:00+06:00"])), "date", [0]),
        (pd.Series([date(1970, 1, 3), None], dtype=object), "date", [2, NAN]),
    ],
)
def test_numbers_booleans_and_dates_are_numbers(series, kind, expected):
    read_kind, values = read_series(series)
    assert read_kind == kind
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    "series",
    [
        pd.Series(["a", None, "b"]),
        pd.Series(["a", None, "b"], dtype=object),
        pd.Series(["a", None, "b"], dtype="category"),
        pd.Series(["a", np.nan, "b"], dtype=object),
    ],
)
def test_texts_keep_missing_ones(series):
    assert read_series(series) == ("category", ["a", None, "b"])


@pytest.mark.parametrize("texts", [["2026-13-45"], ["2026-01-01", "soon"], ["2026-01"], ["12:30"]])
def test_texts_that_are_not_all_dates_stay_texts(texts):
    assert read_series(pd.Series(texts)) == ("category", texts)


@pytest.mark.parametrize(
    "values", [["a", 1], [True, "a"], [True, 2], [[1, 2], [3]], [{"a": 1}], [b"a"], [1j, 2j], [pd.Timedelta(1)]]
)
def test_mixtures_and_structures_are_refused_by_the_name_of_the_column(values):
    with raises_code("dataset-invalid", "'mine'"):
        read_series(pd.Series(values, name="mine", dtype=object))


def test_complex_numbers_and_durations_are_refused():
    for series in (pd.Series([1j], name="mine"), pd.Series([pd.Timedelta(days=1)], name="mine")):
        with raises_code("dataset-invalid", "'mine'"):
            read_series(series)
