"""Labels of a table: standardized numbers and names of classes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.tables.labels import TableLabel, format_class
from tests.support.errors import raises_code

PRICE = TableLabel(name="price", kind="number", mean=100.0, scale=20.0)
GRADE = TableLabel(name="grade", kind="class", classes=("a", "b", "3", "true"))


def test_numbers_are_standardized():
    targets = PRICE.encode_values([120, 90.0])
    assert targets.dtype == np.float32
    assert targets.tolist() == [1, -0.5]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_decoding_undoes_encoding(values):
    decoded = PRICE.decode_numbers(PRICE.encode_values(values).astype(np.float64))
    np.testing.assert_allclose(decoded, values, rtol=1e-5, atol=1e-3)


def test_classes_have_the_places_of_their_names():
    targets = GRADE.encode_values(["b", "a", 3, 3.0, True])
    assert targets.dtype == np.int64
    assert targets.tolist() == [1, 0, 2, 2, 3]


def test_an_unknown_class_is_refused_with_its_row():
    with raises_code("row-invalid", "row 2", "'grade'", "'c'"):
        GRADE.encode_values(["a", "c"])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("a b", "a b"),
        (3, "3"),
        (3.0, "3"),
        (3.5, "3.5"),
        (np.True_, "true"),
        (np.float64(-2), "-2"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_names_of_classes(value, name):
    assert format_class(value) == name
