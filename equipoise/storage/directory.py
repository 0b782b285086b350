"""Flat directories of files: a folder on this machine, or a prefix of an object store behind a URL."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from equipoise.storage.atomic import atomic_write
from equipoise.storage.object_store import RemotePath, open_filesystem, parse_location


class LocalDirectory:
    """Directory of files in a folder on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list_files(self) -> list[str]:
        """List the names of all files; an empty list if the folder does not exist yet."""
        try:
            with os.scandir(self.root) as entries:
                return [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def read_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """Read files by name; those that cannot be read are missing from the result."""
        contents = {}
        for name in names:
            with suppress(OSError):  # removed since it was listed, or unreadable
                contents[name] = (self.root / name).read_bytes()
        return contents

    def write_file(self, name: str, content: bytes) -> None:
        """Write a whole file atomically, creating the folder if needed."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # pictures may show people: only the owner may read
        with atomic_write(self.root / name) as temporary:
            temporary.write_bytes(content)

    def remove_file(self, name: str) -> None:
        """Remove a file; it may be gone already, since several replicas make room at once."""
        (self.root / name).unlink(missing_ok=True)


class RemoteDirectory:
    """Directory of files in an object store, where a put is atomic; errors of its client are raised as OSError."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem, self.root = filesystem, root.rstrip("/")

    def list_files(self) -> list[str]:
        """List the names of all files; an empty list if nothing was written yet."""
        try:
            with convert_to_os_error():
                self.filesystem.invalidate_cache(self.root)  # other replicas write too
                entries = self.filesystem.ls(self.root, detail=True)
        except FileNotFoundError:
            return []
        return [entry["name"].rpartition("/")[2] for entry in entries if entry["type"] == "file"]

    def read_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """Read files by name, concurrently where the store supports it; missing files are missing from the result."""
        if not names:
            return {}
        with convert_to_os_error():
            results = self.filesystem.cat([f"{self.root}/{name}" for name in names], on_error="return")
            errors = [result for result in results.values() if isinstance(result, Exception)]
            for error in errors:
                if not isinstance(error, FileNotFoundError):
                    raise error
        return {path.rpartition("/")[2]: result for path, result in results.items() if isinstance(result, bytes)}

    def write_file(self, name: str, content: bytes) -> None:
        """Write a whole file in one put."""
        with convert_to_os_error():
            self.filesystem.pipe_file(f"{self.root}/{name}", content)

    def remove_file(self, name: str) -> None:
        """Remove a file; it may be gone already, since several replicas make room at once."""
        with suppress(FileNotFoundError), convert_to_os_error():
            self.filesystem.rm_file(f"{self.root}/{name}")


def open_directory(location: str) -> LocalDirectory | RemoteDirectory:
    """Open the directory at a path or URL, without accessing it yet."""
    root = parse_location(location)
    return RemoteDirectory(*open_filesystem(location)) if isinstance(root, RemotePath) else LocalDirectory(root)


@contextmanager
def convert_to_os_error() -> Iterator[None]:
    """Raise exceptions of a store's client, which has types of its own, as OSError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
