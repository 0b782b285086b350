"""Waiting for a store that does not answer: for PATIENCE seconds at most, and with a word in the log."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

RETRY_SECONDS_VARIABLE = "EQUIPOISE_STORE_RETRY_SECONDS"
DEFAULT_RETRY_SECONDS = 120.0
MAX_RETRY_PAUSE_SECONDS = 5.0  # between two attempts; one attempt at s3:// takes 15 s at most
PERMANENT_ERRORS = (ValueError, TypeError, ImportError, NotImplementedError, PermissionError, FileExistsError)
"""errors that no waiting mends; a store's own are told by `is_permanent_error`"""
PATH_STATE_ERRORS = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""answers, which only those who asked can judge"""

T = TypeVar("T")
logger = logging.getLogger(__name__)
retries_disabled: ContextVar[bool] = ContextVar("hurried", default=False)
"""whether each question is asked once, as it is within `without_retries`"""


class StoreUnavailable(OSError):  # noqa: N818 # a state, which every edge tells apart
    """A store did not answer for as long as it was waited for."""


@contextmanager
def without_retries() -> Iterator[None]:
    """Within, each question is asked once, and not again."""
    before = retries_disabled.set(True)
    try:
        yield
    finally:
        retries_disabled.reset(before)


def retry_while_unavailable(action: Callable[[], T], location: str) -> T:
    """What `action` returns; it is tried again while the store is away, up to a bound."""
    seconds = 0.0 if retries_disabled.get() else read_retry_seconds()
    start, pause, told = time.monotonic(), 0.25, False
    while True:
        try:
            found = action()
        except PATH_STATE_ERRORS:
            raise
        except Exception as error:
            if is_permanent_error(error):
                raise ValueError(f"{location} cannot be used ({redacted_error_reason(error)})") from error
            if time.monotonic() + pause > start + seconds:
                raise StoreUnavailable(f"{location} does not answer ({redacted_error_reason(error)})") from error
            if not told:
                logger.warning(
                    "%s does not answer (%s): it is waited for, %g s at most",
                    location,
                    redacted_error_reason(error),
                    seconds,
                )
            told = True
        else:
            if told:
                logger.warning("%s answers again, after %.0f s", location, time.monotonic() - start)
            return found
        time.sleep(pause)
        pause = min(2 * pause, MAX_RETRY_PAUSE_SECONDS)


def read_retry_seconds() -> float:
    """Seconds, as the environment says."""
    text = os.environ.get(RETRY_SECONDS_VARIABLE, str(DEFAULT_RETRY_SECONDS))
    with suppress(ValueError):
        if 0 <= float(text) < float("inf"):
            return float(text)
    raise ValueError(f"{RETRY_SECONDS_VARIABLE} must be a number of seconds, got {text!r}")


def is_permanent_error(error: Exception) -> bool:
    """Whether waiting would not mend it. Clients of stores have exceptions of their own for missing credentials."""
    if type(error).__name__ in ("UnicodeError", "EndpointConnectionError"):
        return False
    known = isinstance(error, PERMANENT_ERRORS) or re.search(
        "Credential|Profile|Region|Param|Token", type(error).__name__
    )
    return bool(known) or getattr(error, "errno", None) == 22  # EINVAL: what was asked cannot be


def redacted_error_reason(error: Exception) -> str:
    """What a store's client says, in a line without secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"//[^/@\s]*@", "//", re.sub(r"\?[^\s\"']*", "", text))[:300]
