"""Specification of a table: inputs of rows, and rows that are refused in a sentence."""

import json
import subprocess
import sys

import numpy as np
import pytest

from equipoise.tables.columns import TableColumn
from equipoise.tables.labels import TableLabel
from equipoise.tables.spec import TableSpec
from tests.support.errors import raises_code

AGE = TableColumn(name="age", kind="number", mean=40.0, scale=10.0, has_missing=True)
PAID = TableColumn(name="paid", kind="boolean", mean=0.5, scale=0.5)
CITY = TableColumn(name="city", kind="category", categories=("Bern", "Ulm"))
LABEL = TableLabel(name="price", kind="number", mean=100.0, scale=20.0)
SPEC = TableSpec(columns=(AGE, CITY, PAID), label=LABEL, ignored={"id": "it numbers the rows"})
ROW = {"age": 50, "city": "Ulm", "paid": True}


def test_rows_become_numbers_and_codes():
    numbers, codes = SPEC.encode_rows([ROW, {"paid": None, "city": None, "age": None}])
    assert numbers.dtype == np.float32 and codes.dtype == np.int64
    assert numbers.tolist() == [[1, 0, 1], [0, 1, 0]]
    assert codes.tolist() == [[2], [0]]
    assert SPEC.feature_names == ["age", "age is missing", "paid"]
    assert SPEC.category_sizes == [3]


@pytest.mark.parametrize(
    ("columns", "dtype", "shape"), [((AGE, PAID), np.float32, (1, 3)), ((CITY,), np.int64, (1, 1))]
)
def test_inputs_are_one_array_where_all_columns_are_of_one_kind(columns, dtype, shape):
    inputs = TableSpec(columns=columns, label=LABEL).encode_rows([select_values(columns)])
    assert inputs.dtype == dtype and inputs.shape == shape


def select_values(columns):
    """Return the values of a row in some columns."""
    return {column.name: ROW[column.name] for column in columns}


def test_label_and_ignored_columns_may_stand_in_a_row():
    plain, full = SPEC.encode_rows([ROW]), SPEC.encode_rows([ROW | {"id": 7, "price": "unknown"}])
    assert all(np.array_equal(a, b) for a, b in zip(plain, full, strict=True))


def test_a_missing_column_is_named():
    with raises_code("row-invalid", "row 2", "'city'"):
        SPEC.encode_rows([ROW, {"age": 1, "paid": False}])


def test_an_unknown_column_is_named_with_one_that_is_like_it():
    with raises_code("row-invalid", "row 1", "'town'"):
        SPEC.encode_rows([ROW | {"town": "Ulm"}])
    with raises_code("row-invalid", "'Age'; did you mean 'age'?"):
        SPEC.encode_rows([ROW | {"Age": 1}])


def test_a_text_where_a_number_must_be_is_refused():
    with raises_code("row-invalid", "'age'", "'fifty'", "a number"):
        SPEC.encode_rows([ROW | {"age": "fifty"}])


def test_json_gives_the_same_specification():
    assert TableSpec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC


@pytest.mark.parametrize(
    "change",
    [
        {"columns": [{"name": "x", "kind": "picture"}]},
        {"columns": [{"name": "x", "kind": "number", "scale": 0}]},
        {"label": 1},
    ],
)
def test_a_damaged_specification_is_refused(change):
    with raises_code("bundle-invalid"):
        TableSpec.from_json(SPEC.to_json() | change)


def test_a_row_is_encoded_without_pandas_and_torch():
    program = (
        "import sys; from equipoise.tables.columns import TableColumn; from equipoise.tables.labels import TableLabel;"
        "from equipoise.tables.spec import TableSpec;"
        "label = TableLabel(name='y', kind='number');"
        "spec = TableSpec(columns=(TableColumn(name='x', kind='number'),), label=label);"
        "assert spec.encode_rows([{'x': 1}]).tolist() == [[1]];"
        "assert not {'pandas', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_one_similar_column_is_named():
    columns = tuple(TableColumn(name=name, kind="number") for name in ("height", "heights", "weight"))
    with raises_code("row-invalid") as raised:
        TableSpec(columns=columns, label=LABEL).encode_rows([{"height": 1, "heights": 2, "weight": 3, "heigth": 4}])
    assert "'heigth'; did you mean 'height'?" in str(raised.value) and str(raised.value).count("did you mean") == 1
