"""Statistics of the columns of a table, and which columns are ignored or refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from equipoise.workloads.table.column_fit import MIN_CATEGORY_ROWS, fit_columns
from equipoise.workloads.table.series_values import read_series
from equipoise.workloads.table.table_files import TableData
from tests.support.errors import raises_code
from tests.support.tables import mixed_table

ROWS, TRAIN_ROWS = 100, 60


def fit_table(**columns):
    """Return the columns of a table whose first 60 rows are the training split, and why others are ignored."""
    frame = pd.DataFrame(columns)
    data = TableData(frame, [(Path("points.csv"), len(frame))])
    series = {name: read_series(frame[name]) for name in frame.columns}
    columns, ignored = fit_columns(data, series, np.arange(TRAIN_ROWS))
    return {column.name: column for column in columns}, ignored


def test_statistics_are_those_of_the_training_split():
    values = np.random.default_rng(0).normal(5, 3, ROWS)
    values[TRAIN_ROWS:] = 1000
    x = fit_table(x=values)[0]["x"]
    assert (x.mean, x.scale) == (pytest.approx(values[:TRAIN_ROWS].mean()), pytest.approx(values[:TRAIN_ROWS].std()))
    assert not x.has_missing


def test_missing_values_of_the_training_split_alone_are_marked():
    early, late = np.random.default_rng(0).normal(size=(2, ROWS))
    early[3], late[-1] = np.nan, np.nan
    columns, _ = fit_table(early=early, late=late)
    assert columns["early"].has_missing and not columns["late"].has_missing
    assert columns["early"].mean == pytest.approx(np.nanmean(early[:TRAIN_ROWS]))


def test_a_single_value_counts_where_others_are_missing():
    column = fit_table(x=[7.0] * 50 + [np.nan] * 50)[0]["x"]
    assert (column.mean, column.scale, column.has_missing) == (7, 1, True)


def test_categories_are_the_texts_of_the_training_split_that_are_not_rare():
    texts = ["b", "a"] * 29 + ["once"] + [None] + ["late"] * 40
    assert MIN_CATEGORY_ROWS == 2
    assert fit_table(city=texts)[0]["city"].categories == ("a", "b")


def test_kinds_of_a_mixed_table_and_columns_of_no_use():
    frame = mixed_table(ROWS)
    columns, ignored = fit_table(**{name: frame[name] for name in frame.columns})
    kinds = {name: column.kind for name, column in columns.items()}
    assert kinds == {
        "age": "number",
        "city": "category",
        "paid": "boolean",
        "day": "date",
        "price": "number",
        "grade": "category",
    }
    assert set(ignored) == {"id", "key", "country"}


@pytest.mark.parametrize(
    "values",
    [
        np.full(ROWS, 3.0),
        np.full(ROWS, 0.1),
        np.r_[np.full(TRAIN_ROWS, 3.0), np.arange(40)],
        np.full(ROWS, np.nan),
        np.random.default_rng(0).permutation(ROWS) + 17,
        [None] * ROWS,
        ["here"] * ROWS,
        [None] * TRAIN_ROWS + ["a", "b"] * 20,
        [f"name {index}" for index in range(ROWS)],
    ],
)
def test_columns_of_no_use_are_ignored(values):
    columns, ignored = fit_table(x=np.random.default_rng(0).normal(size=ROWS), useless=values)
    assert set(columns) == {"x"} and set(ignored) == {"useless"}
    with raises_code("dataset-invalid", "'useless'"):
        fit_table(useless=values)


def test_whole_numbers_with_gaps_do_not_number_the_rows():
    assert "x" in fit_table(x=np.arange(ROWS) * 2)[0]
    assert "x" in fit_table(x=np.r_[np.arange(ROWS - 1), np.nan])[0]
    assert "x" in fit_table(x=np.arange(ROWS) + 0.5)[0]


def test_infinity_is_refused_with_its_row():
    values = np.random.default_rng(0).normal(size=ROWS)
    values[80] = -np.inf
    with raises_code("dataset-invalid", "'x'", "-inf", "row 81 of points.csv"):
        fit_table(x=values)


def test_numbers_too_large_to_square_are_refused():
    with raises_code("dataset-invalid", "'x'", "1e+200"):
        fit_table(x=[0.0, 1e200] * 50)


def test_numbers_too_close_to_square_are_refused():
    with raises_code("dataset-invalid", "'x'", "too little"):
        fit_table(x=[0.0, 1e-320] * 50)


@pytest.mark.parametrize("text", ["2026-02-30", "31.01.2026", "unknown"])
def test_a_text_among_dates_is_refused_with_its_row(text):
    dates = [f"2026-{index % 12 + 1:02d}-{index % 28 + 1:02d}" for index in range(ROWS)]
    assert fit_table(day=dates)[0]["day"].kind == "date"
    dates[16] = text
    with raises_code("dataset-invalid", "'day'", text, "row 17 of points.csv"):
        fit_table(day=dates)


def test_a_text_among_numbers_is_refused_with_its_row():
    texts = [str(index * 3) for index in range(ROWS)]
    texts[16] = "?"
    with raises_code("dataset-invalid", "'x'", "'?'", "row 17 of points.csv"):
        fit_table(x=texts)


def test_a_few_numbers_may_be_categories():
    assert fit_table(rooms=["1", "2", "3", "4 or more"] * 25)[0]["rooms"].categories == ("1", "2", "3", "4 or more")
