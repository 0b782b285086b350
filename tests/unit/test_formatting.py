import pytest

from equipoise.formatting import first_error_line, format_bit_rate, format_bytes, make_printable, pluralize


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
