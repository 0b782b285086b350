"""Labels of tables: numbers or classes, and labels that are refused in a sentence."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from equipoise.workloads.table.label_fit import fit_label, read_label, require_label
from equipoise.workloads.table.series_values import read_series
from equipoise.workloads.table.table_files import TableData
from tests.support.errors import raises_code


def build_data(values):
    frame = pd.DataFrame({"x": range(len(values)), "y": values})
    return TableData(frame, [(Path("points.csv"), len(frame))])


def read_values(values):
    """Return the label of a table with these values, and its encoded values."""
    data = build_data(values)
    return read_label(data, "y", *read_series(data.frame["y"]))


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (["dog", "cat"] * 20, ("cat", "dog")),
        ([True, False] * 20, ("false", "true")),
        ([10, 9] * 20, ("9", "10")),
        ([0.0, -1.0] * 20, ("-1", "0")),
        (list(range(10)) * 8, tuple("0123456789")),
    ],
)
def test_texts_booleans_and_few_whole_numbers_are_classes(values, classes):
    label, targets = read_values(values)
    assert (label.kind, label.classes) == ("class", classes)
    assert [label.classes[target] for target in targets] == [
        str(value).lower() if isinstance(value, bool) else f"{value:.0f}" if isinstance(value, float) else str(value)
        for value in values
    ]


@pytest.mark.parametrize("values", [[0.5, 1.0] * 20, list(range(11)) * 8, [1] * 30 + [2] * 7])
def test_other_numbers_are_numbers(values):
    label, targets = read_values(values)
    assert label.kind == "number"
    assert targets.tolist() == values


def test_statistics_of_a_number():
    values = np.random.default_rng(0).normal(3, 2, 50)
    label, numbers = read_values(values)
    fitted = fit_label(label, numbers)
    assert (fitted.mean, fitted.scale) == (pytest.approx(values.mean()), pytest.approx(values.std()))
    with raises_code("dataset-invalid", "'y'"):
        fit_label(label, np.full(30, 0.1))


@pytest.mark.parametrize(
    ("values", "mentioned"),
    [
        ([1.5, 2.5] * 9, "18 rows"),
        ([0.5] * 16 + [None] * 4, "4 rows: the first is row 17 of points.csv"),
        (["a"] * 16 + [None] * 4, "row 17 of points.csv"),
        ([0.5] * 29 + [np.inf], "row 30 of points.csv"),
        (["a"] * 30, "'a'"),
        ([1] * 30, "'1'"),
        ([True] * 30, "'true'"),
        ([f"text {index}" for index in range(30)], "30 different texts in 30 rows"),
        (["a"] * 20 + ["b"] * 20 + ["c"] * 7, "c (7)"),
        (["2026-01-01", "2026-01-02"] * 15, "dates"),
        ([*(f"{number}.5" for number in range(40)), "oops"], "'oops' in row 41 of points.csv"),
    ],
)
def test_unusable_labels_are_refused(values, mentioned):
    with raises_code("dataset-invalid", mentioned):
        read_values(values)


def test_a_missing_or_unknown_label_is_refused_with_the_columns():
    data = build_data([1, 2])
    assert require_label(data, "y") == "y"
    with raises_code("option-missing", "--label", "x, y"):
        require_label(data, None)
    with raises_code("dataset-invalid", "'price'", "x, y"):
        require_label(data, "price")
    with raises_code("dataset-invalid", "did you mean 'y'"):
        require_label(data, "Y")
    wide = TableData(pd.DataFrame(np.zeros((1, 5000))).rename(columns=str), [])
    with raises_code("dataset-invalid", "and 4,970 others") as refusal:
        require_label(wide, "price")
    assert len(str(refusal.value)) < 500
