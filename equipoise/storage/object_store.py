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

from equipoise.storage.location import validate_location
from equipoise.storage.retry import retry_while_unavailable

FILESYSTEM_OPTIONS: dict[str, dict[str, Any]] = {
    # other processes write too, so nothing listed is kept; waiting and trying again is ours, so that it has one bound
    "s3": {"use_listings_cache": False, "config_kwargs": {"retries": {"max_attempts": 0}}}
}
BASE_WRITE_SECONDS = 15.0
MIN_WRITE_BYTES_PER_SECOND = 1e6  # bytes a second

ActionResult = TypeVar("ActionResult")


class RemotePath(PosixPath):
    """A path of which every question goes to the store behind it; there are no folders to be made or kept."""

    @property
    def filesystem(self) -> Any:
        """fsspec's file system of the store."""
        return open_filesystem(str(self))[0]

    @property
    def key(self) -> str:
        """What the store calls it."""
        found: str = open_filesystem(str(self))[1]
        return found

    def __str__(self) -> str:
        kind, *rest = self.parts
        return f"{kind}//{'/'.join(rest)}"

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"{self} is behind a URL, and no file of this machine")

    def is_absolute(self) -> bool:
        return True

    def absolute(self) -> "RemotePath":
        return self

    def resolve(self, strict: bool = False) -> "RemotePath":
        return self

    def exists(self, **_: Any) -> bool:
        return self._with_retries(lambda: bool(self.filesystem.exists(self.key)))

    def is_file(self, **_: Any) -> bool:
        return self._with_retries(lambda: bool(self.filesystem.isfile(self.key)))

    def is_dir(self, **_: Any) -> bool:
        return self._with_retries(lambda: bool(self.filesystem.isdir(self.key)))

    def iterdir(self) -> Generator["RemotePath", None, None]:
        found = self._with_retries(lambda: self.filesystem.ls(self.key, detail=False))
        names = {str(one).rstrip("/").rpartition("/")[2] for one in found if str(one).strip("/") != self.key.strip("/")}
        yield from (self / name for name in sorted(names))

    def glob(self, pattern: str, **_: Any) -> Generator["RemotePath", None, None]:
        """Of names in this folder alone."""
        with suppress(FileNotFoundError):  # as pathlib has it
            yield from (one for one in self.iterdir() if fnmatch.fnmatchcase(one.name, pattern))

    def read_bytes(self) -> bytes:
        return self._with_retries(lambda: bytes(self.filesystem.cat_file(self.key)))

    def read_text(self, encoding: str | None = None, errors: str | None = None, **_: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def write_bytes(self, data: Any) -> int:
        self._with_retries(
            lambda: self.filesystem.pipe_file(
                self.key, bytes(data), **write_timeout_options(self.filesystem, len(data))
            )
        )
        return len(data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        return self.write_bytes(data.encode(encoding or "utf-8", errors or "strict"))

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        self.write_bytes(b"")

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            self._with_retries(lambda: self.filesystem.rm_file(self.key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """An object store has no folders: a name may hold slashes."""

    def stat(self, **_: Any) -> NoReturn:
        raise OSError(f"{self} is behind a URL, which tells no more than whether it is there")

    def checksum(self) -> str | None:
        """What is another once its content is; None while there is none."""
        with suppress(FileNotFoundError):
            return self._with_retries(lambda: str(self.filesystem.checksum(self.key)))
        return None

    def download_to(self, local_path: Path) -> None:
        """Its content as a file of this disk."""
        self._with_retries(lambda: self.filesystem.get_file(self.key, str(local_path)))

    def upload_from(self, local_path: Path) -> None:
        """A file of this disk as its content, in one put."""
        self._with_retries(
            lambda: self.filesystem.put_file(
                str(local_path), self.key, **write_timeout_options(self.filesystem, local_path.stat().st_size)
            )
        )

    def _with_retries(self, action: Callable[[], ActionResult]) -> ActionResult:
        validate_location(str(self))  # before its name may stand in what is said
        return retry_while_unavailable(action, str(self))


def parse_location(location: str) -> Path:
    """A path as it was given on a command line: of this disk, or behind a URL. Nothing is looked at yet."""
    kind, found, rest = location.partition("://")
    if not found:
        return Path(location)
    if kind == "file":
        return Path(rest if rest.startswith("/") else location)  # the second is refused by `location.require_plain`
    return RemotePath(location)


def open_filesystem(location: str) -> tuple[Any, str]:
    """fsspec's file system of a URL, and its name for what is behind."""
    validate_location(location)
    kind = location.partition("://")[0]
    fsspec: Any = importlib.import_module("fsspec")
    try:
        files, key = fsspec.core.url_to_fs(location, **FILESYSTEM_OPTIONS.get(kind, {}))
    except ImportError as error:
        raise ValueError(f"{location} cannot be reached ({error}): pip install what {kind}:// needs") from None
    if hasattr(files, "retries"):
        files.retries = 1  # s3fs's own five attempts, of 15 s each, would multiply ours
    return files, key


def write_timeout_options(filesystem: Any, size_bytes: int) -> dict[str, float]:
    """The time one attempt to write may take: aiohttp waits for a server's "100 Continue" without any of its own."""
    return (
        {"timeout": BASE_WRITE_SECONDS + size_bytes / MIN_WRITE_BYTES_PER_SECOND}
        if getattr(filesystem, "async_impl", False)
        else {}
    )
