import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.formatting import (
    capitalize_first,
    choose_energy_unit,
    first_error_line,
    format_bit_rate,
    format_bytes,
    format_joules,
    format_number,
    format_range,
    format_rounded,
    format_share,
    format_units,
    last_error_line,
    make_printable,
    pluralize,
)


def test_pluralize_formats_a_count_with_its_noun():
    assert [pluralize(count, "record") for count in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]


def test_first_error_line_falls_back_to_default_or_type():
    assert first_error_line(ValueError("\n one\ntwo")) == "one"
    assert first_error_line(KeyError()) == "KeyError"
    assert first_error_line(KeyError(), "no message") == "no message"


def test_make_printable_escapes_what_a_terminal_would_act_on():
    assert make_printable("caf\xe9 \u4e2d \\n 'x'") == "caf\xe9 \u4e2d \\n 'x'"
    assert make_printable("a\nb\x1b[31m\x9b\u202e\udcff") == r"a\nb\x1b[31m\x9b\u202e\udcff"
    assert make_printable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1000, "1,000 bytes"), (65_536, "64 KiB"), (340_000, "332 KiB"), (3 << 29, "1.5 GiB")],
)
def test_bytes_are_formatted_in_the_unit_that_reads_best(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("bytes_a_second", "text"), [(25e6, "200 Mbit/s"), (1.5e9, "12 Gbit/s"), (1250, "10 kbit/s"), (2.4e7, "192 Mbit/s")]
)
def test_rates_are_formatted_in_bits(bytes_a_second, text):
    assert format_bit_rate(bytes_a_second) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(1023, "1,023 bytes"), (1024, "1 KiB"), (1024**2, "1 MiB"), (1024**4, "1 TiB"), (5000 * 1024**4, "5,000 TiB")],
)
def test_a_unit_of_bytes_begins_at_its_size_and_the_last_one_has_no_end(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("bytes_a_second", "text"),
    [(125_000, "1 Mbit/s"), (124_000, "992 kbit/s"), (125e6, "1 Gbit/s"), (124e6, "992 Mbit/s"), (0, "0 kbit/s")],
)
def test_a_unit_of_rates_begins_at_its_size(bytes_a_second, text):
    assert format_bit_rate(bytes_a_second) == text


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (0, "0 J"),
        (998, "998 J"),
        (1000, "1 kJ"),
        (12_345, "12.3 kJ"),
        (1e6, "1 MJ"),
        (1e9, "1 GJ"),
        (2e13, "20,000 GJ"),
    ],
)
def test_energies_are_formatted_in_the_unit_that_reads_best(joules, text):
    assert format_joules(joules) == text
    size, unit = choose_energy_unit(joules)
    assert text.endswith(f" {unit}") and (joules >= size or (joules < 1000 and size == 1))


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_a_dash(value):
    assert format_number(value) == "-"


@given(st.floats(-1e12, 1e12))
def test_numbers_have_three_digits_that_count_and_no_power_of_ten_above_one(value):
    text = format_number(value)
    assert abs(float(text.replace(",", "")) - value) <= max(abs(value) * 0.005, 0.5 * (abs(value) >= 1000))
    assert "e+" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999.4, "999"), (999.5, "1,000"), (-999.5, "-1,000"), (1234.5, "1,234"), (0.012345, "0.0123")],
)
def test_numbers_from_a_thousand_on_are_whole(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (12.6, "13"), (12_649, "13,000"), (1_050_000, "1,000,000")])
def test_rough_numbers_have_two_digits_that_count(value, text):
    assert format_rounded(value) == text


def test_shares_are_percentages_without_decimals():
    assert [format_share(share) for share in (None, 0.0, 0.126, 1.0)] == ["-", "0%", "13%", "100%"]


def test_other_units_stand_in_brackets_and_examples_need_none():
    assert format_units(13, "tokens", 128) == " (1,664 tokens)" and format_units(0.5, "tokens", 3) == " (2 tokens)"
    assert format_units(13, "examples", 1) == ""


def test_last_error_line_falls_back_to_default_or_type():
    assert last_error_line(ValueError("one\n  two \n")) == "two"
    assert last_error_line(KeyError()) == "KeyError" and last_error_line(KeyError(), "no message") == "no message"


def test_only_the_first_letter_becomes_a_capital():
    assert [capitalize_first(text) for text in ("", "a", "a GPU of H100", "B")] == ["", "A", "A GPU of H100", "B"]


def test_large_numbers_keep_all_digits_before_the_point() -> None:
    """A price or a time is never written with a power of ten, however many digits are asked for."""
    assert [format_number(value, 4) for value in (12_345.6, 9_999.6, 9_999.4, 0.123456)] == [
        *("12,346", "10,000", "9,999", "0.1235")
    ]


def test_range_has_both_ends_with_the_same_digits() -> None:
    """An interval over several magnitudes stays readable."""
    assert format_range(3.81234, 4_120.4) == "3.81 to 4,120"
    assert format_range(1.0, None) == "1 to -"
