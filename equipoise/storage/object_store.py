"""A path behind a URL: s3://bucket/runs/x, read and written as a folder on this disk is.

All that is asked of the store waits while the store is away (`retry`). Credentials come from where its client looks
for them (environment, files, the machine's role), never from the URL (`location`).
"""

import fnmatch
import importlib
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path, PosixPath
from typing import Any, NoReturn, TypeVar

from equipoise.storage import location, retry

OPTIONS: dict[str, dict[str, Any]] = {
    # other processes write too, so nothing listed is kept; waiting and trying again is ours, so that it has one bound
    "s3": {"use_listings_cache": False, "config_kwargs": {"retries": {"max_attempts": 0}}}
}
WRITE_SECONDS = 15.0
SLOWEST = 1e6  # bytes a second

T = TypeVar("T")


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
        location.require_plain(str(self))  # before its name may stand in what is said
        return retry.patiently(action, str(self))


def place(text: str) -> Path:
    """A path as it was given on a command line: of this disk, or behind a URL. Nothing is looked at yet."""
    kind, found, rest = text.partition("://")
    if not found:
        return Path(text)
    if kind == "file":
        return Path(rest if rest.startswith("/") else text)  # the second is refused by `location.require_plain`
    return Url(text)


def opened(text: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and its name for what is behind."""
    location.require_plain(text)
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
