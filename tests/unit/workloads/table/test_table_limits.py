"""Columns, labels and models of tables at their limits: the last that is taken and the first that is not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from equipoise.tables.spec import TableColumn, TableLabel, TableSpec
from equipoise.workloads.table.label_fit import read_label, require_label
from equipoise.workloads.table.models import table_model_factory
from equipoise.workloads.table.series_values import read_series
from equipoise.workloads.table.table_files import TableData
from tests.support.errors import raises_code
from tests.unit.workloads.table.test_column_fit import ROWS, TRAIN_ROWS, fit_table

NUMBERS = np.random.default_rng(0).normal(size=ROWS)


def spread(texts, rows=ROWS):
    """Repeat texts in turn to as many rows."""
    return [texts[index % len(texts)] for index in range(rows)]


def test_texts_that_stand_in_two_rows_each_are_categories():
    pairs = [f"t{index}" for index in range(TRAIN_ROWS // 2)]
    assert len(fit_table(city=spread(pairs), x=NUMBERS)[0]["city"].categories) == TRAIN_ROWS // 2
    more = [*pairs[:-1], *pairs[:-1], "once", "alone", *pairs, *pairs[:10]]
    assert "one row only" in fit_table(city=more, x=NUMBERS)[1]["city"]


def test_a_single_text_counts_where_others_are_missing():
    columns, ignored = fit_table(city=[None, *["here"] * (ROWS - 1)], x=NUMBERS)
    assert columns["city"].categories == ("here",) and not ignored
    assert fit_table(city=["here"] * ROWS, x=NUMBERS)[1] == {"city": "it has one value in the whole training split"}


def test_more_than_twenty_texts_that_read_as_numbers_are_no_categories():
    few = [*map(str, range(19)), "?"]
    assert len(fit_table(rooms=spread(few))[0]["rooms"].categories) == 20
    with raises_code(
        "dataset-invalid", "'?' in row 21 of points.csv and numbers in most others", "replace it by a number"
    ):
        fit_table(rooms=spread([*map(str, range(20)), "?"]))


@pytest.mark.parametrize(("others", "is_refused"), [(2, True), (4, False)])
def test_a_tenth_of_other_texts_spoils_a_column_of_numbers(others, is_refused):
    texts = [*map(str, range(30 - others)), *"abcd"[:others]]
    if is_refused:
        with raises_code("dataset-invalid", "'x'"):
            fit_table(x=spread(texts))
    else:
        assert fit_table(x=spread(texts))[0]["x"].kind == "category"


def test_numbers_without_variation_are_kept_only_where_some_are_missing():
    assert fit_table(x=[3.0] * ROWS, y=NUMBERS)[1] == {"x": "it has one value in the whole training split"}
    late = [3.0] * TRAIN_ROWS + [np.nan] * (ROWS - TRAIN_ROWS)
    assert "x" in fit_table(x=late, y=NUMBERS)[1]
    assert fit_table(x=[np.nan] * TRAIN_ROWS + [1.0] * (ROWS - TRAIN_ROWS), y=NUMBERS)[1] == {
        "x": "it has no values in the training split"
    }


def read_values(values):
    frame = pd.DataFrame({"x": range(len(values)), "y": values})
    return read_label(TableData(frame, [(Path("points.csv"), len(frame))]), "y", *read_series(frame["y"]))[0]


def test_twenty_rows_are_enough():
    assert read_values(NUMBERS[:20].tolist()).kind == "number"
    with raises_code("dataset-invalid", "the table has 19 rows", "give at least 20"):
        read_values(NUMBERS[:19].tolist())


def test_eight_rows_of_a_class_are_enough():
    assert read_values(["a"] * 12 + ["b"] * 8).classes == ("a", "b")
    assert read_values([3] * 12 + [5] * 8).kind == "class" and read_values([3] * 13 + [5] * 7).kind == "number"


def test_rare_classes_are_named_where_most_are_not_rare():
    with raises_code("dataset-invalid", "fewer than 8 rows: c (7), d (7)") as refusal:
        read_values(["a"] * 20 + ["b"] * 20 + ["c"] * 7 + ["d"] * 7)
    assert not refusal.value.problem.endswith("...")
    with raises_code("dataset-invalid", "it has 3 different texts in 34 rows"):
        read_values(["a"] * 20 + ["c"] * 7 + ["d"] * 7)


@pytest.mark.parametrize("rare", [5, 6])
def test_no_more_than_five_rare_classes_are_named(rare):
    common = [f"common {index}" for index in range(8)] * 9
    with raises_code("dataset-invalid", "r0 (1), r1 (1), r2 (1), r3 (1), r4 (1)") as refusal:
        read_values([*common, *(f"r{index}" for index in range(rare))])
    assert refusal.value.problem.endswith("r4 (1), ..." if rare > 5 else "r4 (1)")


def test_a_thousand_classes_are_enough():
    names = [f"c{index:04}" for index in range(1001)]
    assert len(read_values(names[:1000] * 8).classes) == 1000
    with raises_code("dataset-invalid", "1,001 different texts in 8,008 rows"):
        read_values(names * 8)


def test_thirty_columns_are_shown():
    def refuse(count):
        data = TableData(pd.DataFrame(np.zeros((1, count))).rename(columns=str), [])
        with raises_code("option-missing") as refusal:
            require_label(data, None)
        return refusal.value.remedy

    assert refuse(30).endswith("28, 29") and refuse(31).endswith("28, 29 and 1 others")


def test_models_have_up_to_32_layers_of_8192():
    spec = TableSpec(columns=(TableColumn(name="x", kind="number"),), label=TableLabel(name="y", kind="number"))
    assert callable(table_model_factory("mlp:32x8192", spec))
    model = table_model_factory("mlp:1x1", spec)()
    assert sum(parameter.numel() for parameter in model.parameters()) == 4
