"""Lines of the key file."""

import pytest

from equipoise.errors import EquipoiseError
from services.site.roles import Role, find_role_key, parse_role_key


@pytest.mark.parametrize(
    ("line", "role", "name"),
    [
        ("run secret", Role.RUN, "run key 1"),
        ("label  secret Ada", Role.LABEL, "Ada"),
        ("secret", Role.RUN, "run key 1"),
    ],
)
def test_a_line_is_a_role_a_key_and_perhaps_a_name(line, role, name):
    entry = parse_role_key(line, 1)
    assert (entry.role, entry.key, entry.name) == (role, "secret", name)


@pytest.mark.parametrize("line", ["admin secret", "run secret Ada Lovelace", "view"])
def test_another_line_is_refused_without_its_key(line):
    with pytest.raises(EquipoiseError, match="line 3") as caught:
        parse_role_key(line, 3)
    assert "secret" not in str(caught.value)


def test_a_key_is_found_by_its_text_and_shown_nowhere():
    keys = (parse_role_key("run first", 1), parse_role_key("view second", 2))
    assert find_role_key("second", keys) == keys[1] and find_role_key("secon", keys) is None
    assert "second" not in repr(keys) + keys[1].fingerprint
