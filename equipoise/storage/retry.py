"""Retries while an object store does not answer, for a bounded time and with a warning in the log.

Why by hand: docs/decisions/0006-store-retries.md.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

from equipoise.errors import EquipoiseError

RETRY_SECONDS_VARIABLE = "EQUIPOISE_STORE_RETRY_SECONDS"
DEFAULT_RETRY_SECONDS = 120.0
MAX_RETRY_PAUSE_SECONDS = 5.0  # between two attempts; one attempt at s3:// takes at most 15 s
PERMANENT_ERRORS = (ValueError, TypeError, ImportError, NotImplementedError, PermissionError, FileExistsError)
"""errors that retries cannot resolve; `is_permanent_error` also recognises those of a store's client"""
PATH_STATE_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""answers of the store about a path, which the caller handles"""

T = TypeVar("T")
logger = logging.getLogger(__name__)
retries_disabled: ContextVar[bool] = ContextVar("retries_disabled", default=False)
"""true inside `without_retries`, where each request is made once"""


class StoreUnavailable(OSError):  # noqa: N818 # a state of the store rather than an error of the caller
    """Raised when a store did not answer within the retry time."""


@contextmanager
def without_retries() -> Iterator[None]:
    """Make each request once, without retries, inside the block."""
    token = retries_disabled.set(True)
    try:
        yield
    finally:
        retries_disabled.reset(token)


def retry_while_unavailable(action: Callable[[], T], location: str) -> T:
    """Return the result of `action`, retried while the store is unavailable, up to the retry time."""
    seconds = 0.0 if retries_disabled.get() else read_retry_seconds()
    start, pause, has_warned = time.monotonic(), 0.25, False
    while True:
        try:
            result = action()
        except (*PATH_STATE_ERRORS, EquipoiseError):
            raise
        except Exception as error:
            if is_permanent_error(error):
                raise EquipoiseError(
                    "store-refused", f"cannot use {location}: {redacted_error_reason(error)}"
                ) from error
            if time.monotonic() + pause > start + seconds:
                raise StoreUnavailable(f"{location} does not answer ({redacted_error_reason(error)})") from error
            if not has_warned:
                logger.warning(
                    "%s does not answer (%s): retrying for up to %g s",
                    location,
                    redacted_error_reason(error),
                    seconds,
                )
            has_warned = True
        else:
            if has_warned:
                logger.warning("%s answers again after %.0f s", location, time.monotonic() - start)
            return result
        time.sleep(pause)
        pause = min(2 * pause, MAX_RETRY_PAUSE_SECONDS)


def read_retry_seconds() -> float:
    """Read the retry time in seconds from the environment."""
    text = os.environ.get(RETRY_SECONDS_VARIABLE, str(DEFAULT_RETRY_SECONDS))
    with suppress(ValueError):
        if 0 <= float(text) < float("inf"):
            return float(text)
    raise EquipoiseError("option-format", f"{RETRY_SECONDS_VARIABLE} must be a number of seconds, got {text!r}")


def is_permanent_error(error: Exception) -> bool:
    """Return whether retries cannot resolve an error; missing credentials are recognised by the exception's name."""
    if type(error).__name__ in ("UnicodeError", "EndpointConnectionError"):
        return False
    is_known = isinstance(error, PERMANENT_ERRORS) or re.search(
        "Credential|Profile|Region|Param|Token", type(error).__name__
    )
    return bool(is_known) or getattr(error, "errno", None) == 22  # EINVAL: the request itself is invalid


def redacted_error_reason(error: Exception) -> str:
    """Return the message of a store's client in one line of at most 300 characters, without secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"//[^/@\s]*@", "//", re.sub(r"\?[^\s\"']*", "", text))[:300]
