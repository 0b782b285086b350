"""A path behind a URL: s3://bucket/runs/x, read and written as a folder on this disk is.

All that is asked of the store waits while the store is away, for PATIENCE seconds, and says so. Credentials come
from where its client looks for them (environment, files, the machine's role), never from the URL.
"""

import fnmatch
import importlib
import logging
import os
import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path, PosixPath
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

KINDS = ("s3", "gs", "gcs", "az", "abfs", "abfss", "memory")
"""object stores: a put is atomic there, which all of us lean on"""
OPTIONS: dict[str, dict[str, Any]] = {
    # other processes write too, so nothing listed is kept; waiting and trying again is ours, so that it has one bound
    "s3": {"use_listings_cache": False, "config_kwargs": {"retries": {"max_attempts": 0}}}
}
PATIENCE = "EQUIPOISE_PATIENCE_SECONDS"
PATIENCE_SECONDS = 120.0
LONGEST_PAUSE = 5.0  # between two attempts; one attempt at s3:// takes 15 s at most
WRITE_SECONDS = 15.0
SLOWEST = 1e6  # bytes a second
LASTING = (ValueError, TypeError, ImportError, NotImplementedError, PermissionError, FileExistsError)
"""errors that no waiting mends; a store's own are told by `lasting`"""
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""answers, which only those who asked can judge"""

T = TypeVar("T")
log = logging.getLogger(__name__)
hurried: ContextVar[bool] = ContextVar("hurried", default=False)


class Away(OSError):  # noqa: N818 # a state, which every edge tells apart
    """A store did not answer for as long as it was waited for."""


class Url(PosixPath):
    """A path of which every question goes to the store behind it; there are no folders to be made or kept."""

    @property
    def files(self) -> Any:
        """fsspec's file system of the store."""
        return opened(str(self))[0]

    @property
    def key(self) -> str:
        """What the store calls it."""
        found: str = opened(str(self))[1]
        return found

    def __str__(self) -> str:
        kind, *rest = self.parts
        return f"{kind}//{'/'.join(rest)}"

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"{self} is behind a URL, and no file of this machine")

    def is_absolute(self) -> bool:
        return True

    def absolute(self) -> "Url":
        return self

    def resolve(self, strict: bool = False) -> "Url":
        return self

    def exists(self, **_: Any) -> bool:
        return self._asked(lambda: bool(self.files.exists(self.key)))

    def is_file(self, **_: Any) -> bool:
        return self._asked(lambda: bool(self.files.isfile(self.key)))

    def is_dir(self, **_: Any) -> bool:
        return self._asked(lambda: bool(self.files.isdir(self.key)))

    def iterdir(self) -> Generator["Url", None, None]:
        found = self._asked(lambda: self.files.ls(self.key, detail=False))
        names = {str(one).rstrip("/").rpartition("/")[2] for one in found if str(one).strip("/") != self.key.strip("/")}
        yield from (self / name for name in sorted(names))

    def glob(self, pattern: str, **_: Any) -> Generator["Url", None, None]:
        """Of names in this folder alone."""
        with suppress(FileNotFoundError):  # as pathlib has it
            yield from (one for one in self.iterdir() if fnmatch.fnmatchcase(one.name, pattern))

    def read_bytes(self) -> bytes:
        return self._asked(lambda: bytes(self.files.cat_file(self.key)))

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def write_bytes(self, data: Any) -> int:
        self._asked(lambda: self.files.pipe_file(self.key, bytes(data), **bound(self.files, len(data))))
        return len(data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        self.write_bytes(b"")

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._asked(lambda: self.files.rm_file(self.key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """An object store has no folders: a name may hold slashes."""

    def stat(self, **_: Any) -> NoReturn:
        raise OSError(f"{self} is behind a URL, which tells no more than whether it is there")

    def stamp(self) -> str | None:
        """What is another once its content is; None while there is none."""
        with suppress(FileNotFoundError):
            return self._asked(lambda: str(self.files.checksum(self.key)))
        return None

    def fetch(self, copy: Path) -> None:
        """Its content as a file of this disk."""
        self._asked(lambda: self.files.get_file(self.key, str(copy)))

    def send(self, copy: Path) -> None:
        """A file of this disk as its content, in one put."""
        self._asked(lambda: self.files.put_file(str(copy), self.key, **bound(self.files, copy.stat().st_size)))

    def _asked(self, action: Callable[[], T]) -> T:
        require_plain(str(self))  # before its name may stand in what is said
        return patiently(action, str(self))


def place(text: str) -> Path:
    """A path as it was given on a command line: of this disk, or behind a URL. Nothing is looked at yet."""
    kind, found, rest = text.partition("://")
    if not found:
        return Path(text)
    if kind == "file":
        return Path(rest if rest.startswith("/") else text)  # the second is refused by `require_plain`
    return Url(text)


def taken_apart(text: str) -> tuple[str, str]:
    """The kind of a URL and the rest, however many slashes are between them; no kind where it is a path."""
    found = re.match(rf"({'|'.join((*KINDS, 'file', 'https?'))}):/*(.*)|(.*?)://(.*)", text, re.DOTALL)
    return (found[1] or found[3] or "", found[2] or found[4] or "") if found else ("", text)


def shown(kind: str) -> str:
    """A URL's kind, where it can be told: people put odd things before the slashes."""
    last = kind.rpartition("::")[2]
    return f"{last}://" if re.fullmatch("[A-Za-z0-9+.-]{1,12}", last) else "...://"


def require_no_password(text: str) -> None:
    """Refuse a URL that holds one: it would be seen in records, replies and logs, where URLs are told.

    A password may have slashes in it, or be written with %; what is named alone before @ may be a key's name.
    """
    kind, rest = taken_apart(text)
    if not kind:
        return
    rest = unquote(rest)
    named = re.match("[^/@]*@", rest) and not kind.startswith("abfs")  # there it is the bucket that is named so
    if "@" in kind or named or re.match(r"[^/@]*:(?!\d+(/|$))[^@]*@", rest):
        raise ValueError(
            f"{shown(kind)}... has a password in it: give the URL alone and credentials by the environment"
        )


def require_plain(text: str) -> None:
    """Refuse a URL that holds a secret, which records and pages would repeat, or that is none of an object store."""
    require_no_password(text)
    kind, found, rest = text.partition("://")
    if re.match("file:/?(?!/)|file://(?!/)", text):
        raise ValueError(f"{text} is no file of this machine: three slashes follow file:, such as file:///shared/runs")
    if re.match(rf"({'|'.join(KINDS)}):/?(?!/)", text):
        raise ValueError(f"{text} is no URL: two slashes follow its kind, such as s3://bucket/runs/x")
    if not text.isprintable():
        raise ValueError(f"{text!a} is no name: it has signs that cannot be written")
    if not found or kind == "file":
        return
    if "::" in text:
        raise ValueError(f"{shown(kind)}... is a chain of stores: give one, such as s3://bucket/runs/x")
    if "?" in rest or "#" in rest:
        raise ValueError(
            f"{shown(kind)}... has a query, which may be a signature: give the URL alone and credentials apart"
        )
    if kind not in KINDS:
        stores = ", ".join(f"{one}://" for one in KINDS[:3])
        raise ValueError(f"{shown(kind)} is no object store: give {stores} or a folder")
    if not rest.strip("/"):
        raise ValueError(f"{text} names no bucket: give one, such as s3://bucket/runs/x")


def opened(text: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and its name for what is behind."""
    require_plain(text)
    kind = text.partition("://")[0]
    fsspec: Any = importlib.import_module("fsspec")
    try:
        files, key = fsspec.core.url_to_fs(text, **OPTIONS.get(kind, {}))
    except ImportError as error:
        raise ValueError(f"{text} cannot be reached ({error}): pip install what {kind}:// needs") from None
    if hasattr(files, "retries"):
        files.retries = 1  # s3fs's own five attempts, of 15 s each, would multiply ours
    return files, key


def bound(files: Any, size: int) -> dict[str, float]:
    """The time one attempt to write may take: aiohttp waits for a server's "100 Continue" without any of its own."""
    return {"timeout": WRITE_SECONDS + size / SLOWEST} if getattr(files, "async_impl", False) else {}


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
