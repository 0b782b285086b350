"""Whole numbers of queries and forms."""

import pytest

from services.http.query_numbers import parse_whole_number
from tests.support.errors import raises_code


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("007", 7), ("50", 50)])
def test_whole_number_within_its_bounds_is_parsed(text, number):
    assert parse_whole_number("limit", text, 1, 50) == number


def test_number_has_at_most_nineteen_digits():
    longest = "9" * 19
    assert parse_whole_number("limit", longest, 1, 10**30) == int(longest)
    with raises_code("option-range"):
        parse_whole_number("limit", "9" * 20, 1, 10**30)


@pytest.mark.parametrize("text", ["", "0", "51", "-1", "1.0", "1e1", " 1", "٣", "1" * 5000])
def test_anything_else_is_refused_by_the_name_of_its_field(text):
    with raises_code("option-range", f"cannot use limit={text[:40]}: it must be a number from 1 to 50"):
        parse_whole_number("limit", text, 1, 50)
