from equipoise.formatting import first_error_line, make_printable, pluralize


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
