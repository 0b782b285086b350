from equipoise.formatting import first_error_line, pluralize


def test_pluralize_formats_a_count_with_its_noun():
    assert [pluralize(count, "record") for count in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]


def test_first_error_line_falls_back_to_default_or_type():
    assert first_error_line(ValueError("\n one\ntwo")) == "one"
    assert first_error_line(KeyError()) == "KeyError"
    assert first_error_line(KeyError(), "no message") == "no message"
