"""Expect a request to be rejected, by its HTTP status and what its message mentions."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from services.http.errors import RequestRejected


@contextmanager
def raises_rejection(status: int, *mentioned: object) -> Iterator[pytest.ExceptionInfo[RequestRejected]]:
    """Expect a RequestRejected with this status, whose message mentions each of these values."""
    with pytest.raises(RequestRejected) as raised:
        yield raised
    assert raised.value.status == status, raised.value
    for value in mentioned:
        assert str(value) in raised.value.message
