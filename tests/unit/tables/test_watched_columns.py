"""Columns of rows as drift detection compares them, from rows and from the encoded inputs of a model."""

import numpy as np
import pytest

from equipoise.tables.columns import TableColumn
from equipoise.tables.labels import TableLabel
from equipoise.tables.spec import TableSpec
from equipoise.tables.watched_columns import UNKNOWN_TEXT, decode_input_columns, read_row_columns
from tests.support.errors import raises_code

SPEC = TableSpec(
    columns=(
        TableColumn(name="age", kind="number", mean=40.0, scale=10.0, has_missing=True),
        TableColumn(name="city", kind="category", categories=("Bern", "Graz")),
        TableColumn(name="day", kind="date", mean=20000.0, scale=100.0),
        TableColumn(name="paid", kind="boolean", mean=0.4, scale=0.5),
    ),
    label=TableLabel(name="price", kind="number"),
)
ROWS = [
    {"age": 50, "city": "Graz", "day": "2026-01-01", "paid": True, "price": 3},
    {"age": None, "city": "Ulm", "day": None, "paid": False},
    {"age": 20.5, "city": None, "day": "2026-01-02", "paid": None},
]


def test_rows_become_numbers_and_texts():
    columns = read_row_columns(SPEC, ROWS)
    assert [*columns] == ["age", "city", "day", "paid"]
    np.testing.assert_array_equal(columns["age"], [50, np.nan, 20.5])
    assert columns["city"].tolist() == ["Graz", "Ulm", ""]
    np.testing.assert_array_equal(columns["day"], [20454, np.nan, 20455])
    np.testing.assert_array_equal(columns["paid"], [1, 0, np.nan])
    with raises_code("row-invalid", "age"):
        read_row_columns(SPEC, [ROWS[0] | {"age": "old"}])


@pytest.mark.parametrize("text", ["", UNKNOWN_TEXT])
def test_inputs_stand_for_the_rows_that_they_encode(text):
    columns = decode_input_columns(SPEC, SPEC.encode_rows(ROWS), {"city": text})
    expected = read_row_columns(SPEC, ROWS)
    assert [*columns] == [*expected] and columns["city"].tolist() == ["Graz", text, text]
    np.testing.assert_allclose(columns["age"], expected["age"], rtol=1e-6)
    for name in ("day", "paid"):  # training had no missing ones, so a missing one is the mean
        filled = np.nan_to_num(expected[name], nan=next(entry.mean for entry in SPEC.columns if entry.name == name))
        np.testing.assert_allclose(columns[name], filled, rtol=1e-6, atol=1e-6)


def test_table_without_numbers_has_codes_alone():
    spec = TableSpec(columns=(SPEC.columns[1],), label=SPEC.label)
    codes = spec.encode_rows([{"city": row["city"]} for row in ROWS])
    assert decode_input_columns(spec, [codes], {"city": ""})["city"].tolist() == ["Graz", "", ""]
