"""Expect an error by its code, which stays the same when its sentence is improved."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from equipoise.errors import EquipoiseError


@contextmanager
def raises_code(code: str, *mentioned: object) -> Iterator[pytest.ExceptionInfo[EquipoiseError]]:
    """Expect an EquipoiseError with this code, whose sentence mentions each of these values."""
    with pytest.raises(EquipoiseError) as raised:
        yield raised
    assert raised.value.code == code, raised.value
    for value in mentioned:
        assert str(value) in str(raised.value)
