"""Paths behind a URL such as s3://bucket/runs/x, with the interface of a local pathlib.Path.

Each request is retried while the store is unavailable (see `retry`). Credentials come from where the store's client
looks for them (environment, files, the machine's role), never from the URL (see `location`).

Why by hand: docs/decisions/0005-remote-paths.md.
"""

import fnmatch
import importlib
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path, PosixPath
from typing import Any, NoReturn, TypeVar

from equipoise.errors import EquipoiseError
from equipoise.storage.location import validate_location
from equipoise.storage.retry import redacted_error_reason, retry_while_unavailable

FILESYSTEM_OPTIONS: dict[str, dict[str, Any]] = {
    # no cache of listings, since other processes write too; no retries of the client, so that `retry` alone bounds them
    "s3": {"use_listings_cache": False, "config_kwargs": {"retries": {"max_attempts": 0}}}
}
BASE_WRITE_SECONDS = 15.0  # timeout of one write attempt, plus the time below
MIN_WRITE_BYTES_PER_SECOND = 1e6  # rate assumed for the timeout

ActionResult = TypeVar("ActionResult")


class RemotePath(PosixPath):
    """Path in an object store: each call asks the store, and folders need not be created."""

    @property
    def filesystem(self) -> Any:
        """File system of the store, an instance of fsspec."""
        return open_filesystem(str(self))[0]

    @property
    def key(self) -> str:
        """Name of the object inside the store, bucket included."""
        key: str = open_filesystem(str(self))[1]
        return key

    def __str__(self) -> str:
        kind, *rest = self.parts
        return f"{kind}//{'/'.join(rest)}"

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"cannot open {self} as a local file: it is behind a URL")

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
        paths = [str(path) for path in self._with_retries(lambda: self.filesystem.ls(self.key, detail=False))]
        names = {path.rstrip("/").rpartition("/")[2] for path in paths if path.strip("/") != self.key.strip("/")}
        yield from (self / name for name in sorted(names))

    def glob(self, pattern: str, **_: Any) -> Generator["RemotePath", None, None]:
        """Yield the paths directly in this folder whose names match a pattern."""
        with suppress(FileNotFoundError):  # as pathlib does
            yield from (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

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
        """Do nothing: an object store has no folders, only names with slashes."""

    def stat(self, **_: Any) -> NoReturn:
        raise OSError(f"cannot stat {self}: it is behind a URL, where only its existence is known")

    def checksum(self) -> str | None:
        """Return a string that changes with the content of the object; None while there is no object."""
        with suppress(FileNotFoundError):
            return self._with_retries(lambda: str(self.filesystem.checksum(self.key)))
        return None

    def download_to(self, local_path: Path) -> None:
        """Download the object to a local file."""
        self._with_retries(lambda: self.filesystem.get_file(self.key, str(local_path)))

    def upload_from(self, local_path: Path) -> None:
        """Upload a local file as the object, in one put."""
        self._with_retries(
            lambda: self.filesystem.put_file(
                str(local_path), self.key, **write_timeout_options(self.filesystem, local_path.stat().st_size)
            )
        )

    def _with_retries(self, action: Callable[[], ActionResult]) -> ActionResult:
        validate_location(str(self))  # first, since messages repeat the location
        return retry_while_unavailable(action, str(self))


def parse_location(location: str) -> Path:
    """Parse a local path or a URL into a path, without accessing it."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return Path(location)
    if scheme == "file":
        return Path(rest if rest.startswith("/") else location)  # the latter is refused by `validate_location`
    return RemotePath(location)


def open_filesystem(location: str) -> tuple[Any, str]:
    """Open the fsspec file system of a URL; return it with the object's name inside the store."""
    validate_location(location)
    scheme = location.partition("://")[0]
    fsspec: Any = importlib.import_module("fsspec")
    try:
        filesystem, key = fsspec.core.url_to_fs(location, **FILESYSTEM_OPTIONS.get(scheme, {}))
    except ImportError as error:
        raise EquipoiseError(
            "store-unsupported", f"cannot open {location}: {error}", f"pip install the package for {scheme}://"
        ) from None
    except ValueError as error:  # of the store's client, such as a missing account name
        raise EquipoiseError("store-refused", f"cannot use {location}: {redacted_error_reason(error)}") from error
    if hasattr(filesystem, "retries"):
        filesystem.retries = 1  # s3fs's own five attempts, of 15 s each, would multiply those of `retry`
    return filesystem, key


def write_timeout_options(filesystem: Any, size_bytes: int) -> dict[str, float]:
    """Return the timeout of one attempt to write, since aiohttp has none for a server's "100 Continue"."""
    return (
        {"timeout": BASE_WRITE_SECONDS + size_bytes / MIN_WRITE_BYTES_PER_SECOND}
        if getattr(filesystem, "async_impl", False)
        else {}
    )
