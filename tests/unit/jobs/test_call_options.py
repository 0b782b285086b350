"""Options of a function call: Python's and NumPy's values become the types of the command, others are refused."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from jobs.cli.call_options import convert_option, list_values
from tests.support.errors import raises_code


@pytest.mark.parametrize(
    ("value", "kind", "converted"),
    [
        (np.float32(0.5), float, 0.5),
        (np.array([1, 2]), list[int], [1, 2]),
        (Path("runs/first"), str, "runs/first"),
        ("best", Literal["best", "last"], "best"),
        (None, Literal["best", "last"] | None, None),
    ],
)
def test_value_becomes_the_type_of_its_option(value, kind, converted):
    assert convert_option("option", value, kind) == converted


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("four", int, "cannot use 'four' as workers: expected int, got str"),
        ([1, "two"], list[int], "cannot use [1, 'two'] as workers: expected int, got str"),
        (3, list[int], "cannot use 3 as workers: expected list, got int"),
        (None, int, "cannot use None as workers: expected int, got None"),
    ],
)
def test_another_type_is_refused_in_the_words_of_python(value, kind, message):
    with raises_code("option-format") as caught:
        convert_option("workers", value, kind)
    assert str(caught.value) == message


def test_unknown_name_is_refused_with_those_that_there_are():
    with raises_code("option-choice", "it must be one of best, last, None"):
        convert_option("keep", "first", Literal["best", "last"] | None)


def test_one_number_is_a_list_of_one():
    assert list_values(3) == list_values(np.int64(3)) == [3]
    assert list_values(range(2)) == list_values(np.arange(2)) == [0, 1]
    assert list_values("8:512") == "8:512"
