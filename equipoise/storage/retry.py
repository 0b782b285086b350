"""Waiting for a store that does not answer: for PATIENCE seconds at most, and with a word in the log."""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TypeVar

PATIENCE = "EQUIPOISE_PATIENCE_SECONDS"
PATIENCE_SECONDS = 120.0
LONGEST_PAUSE = 5.0  # between two attempts; one attempt at s3:// takes 15 s at most
LASTING = (ValueError, TypeError, ImportError, NotImplementedError, PermissionError, FileExistsError)
"""errors that no waiting mends; a store's own are told by `lasting`"""
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""answers, which only those who asked can judge"""

T = TypeVar("T")
log = logging.getLogger(__name__)
hurried: ContextVar[bool] = ContextVar("hurried", default=False)
"""whether each question is asked once, as it is within `at_once`"""


class Away(OSError):  # noqa: N818 # a state, which every edge tells apart
    """A store did not answer for as long as it was waited for."""


@contextmanager
def at_once() -> Iterator[None]:
    """Within, each question is asked once, and not again."""
    before = hurried.set(True)
    try:
        yield
    finally:
        hurried.reset(before)


def patiently(action: Callable[[], T], what: str) -> T:
    """What `action` returns; it is tried again while the store is away, up to a bound."""
    seconds = 0.0 if hurried.get() else patience()
    start, pause, told = time.monotonic(), 0.25, False
    while True:
        try:
            found = action()
        except MISSING:
            raise
        except Exception as error:
            if lasting(error):
                raise ValueError(f"{what} cannot be used ({reason(error)})") from error
            if time.monotonic() + pause > start + seconds:
                raise Away(f"{what} does not answer ({reason(error)})") from error
            if not told:
                log.warning("%s does not answer (%s): it is waited for, %g s at most", what, reason(error), seconds)
            told = True
        else:
            if told:
                log.warning("%s answers again, after %.0f s", what, time.monotonic() - start)
            return found
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def patience() -> float:
    """Seconds, as the environment says."""
    text = os.environ.get(PATIENCE, str(PATIENCE_SECONDS))
    with suppress(ValueError):
        if 0 <= float(text) < float("inf"):
            return float(text)
    raise ValueError(f"{PATIENCE} must be a number of seconds, got {text!r}")


def lasting(error: Exception) -> bool:
    """Whether waiting would not mend it. Clients of stores have exceptions of their own for missing credentials."""
    if type(error).__name__ in ("UnicodeError", "EndpointConnectionError"):
        return False
    known = isinstance(error, LASTING) or re.search("Credential|Profile|Region|Param|Token", type(error).__name__)
    return bool(known) or getattr(error, "errno", None) == 22  # EINVAL: what was asked cannot be


def reason(error: Exception) -> str:
    """What a store's client says, in a line without secrets."""
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"//[^/@\s]*@", "//", re.sub(r"\?[^\s\"']*", "", text))[:300]
