from equipoise.formatting import first_error_line, pluralize


def test_a_count_stands_with_its_noun():
    assert [pluralize(count, "record") for count in (0, 1, 2000)] == ["0 records", "1 record", "2,000 records"]


def test_an_error_is_told_by_its_first_line_or_else_by_its_type():
    assert first_error_line(ValueError("\n one\ntwo")) == "one"
    assert first_error_line(KeyError()) == "KeyError"
    assert first_error_line(KeyError(), "no message") == "no message"
