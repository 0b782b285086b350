"""Files by name in one place: a folder on this machine, or a bucket behind a URL."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from equipoise.storage.atomic import atomic_write
from equipoise.storage.object_store import RemotePath, open_filesystem, parse_location


class LocalDirectory:
    """Files of a folder on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def list_files(self) -> list[str]:
        """Of all files; none if there is no such folder yet."""
        try:
            with os.scandir(self.root) as found:
                return [one.name for one in found if one.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def read_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """What those that can be read hold."""
        held = {}
        for name in names:
            with suppress(OSError):  # gone since it was listed, or on a damaged part of the disk
                held[name] = (self.root / name).read_bytes()
        return held

    def write_file(self, name: str, content: bytes) -> None:
        """The whole file, or none."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # pictures may show people: a new one is its owner's
        with atomic_write(self.root / name) as temporary:
            temporary.write_bytes(content)

    def remove_file(self, name: str) -> None:
        """It may be gone already: replicas make room at once."""
        (self.root / name).unlink(missing_ok=True)


class RemoteDirectory:
    """Files of an object store: a put is atomic there. Whatever its client raises comes as an OSError."""

    def __init__(self, filesystem: Any, root: str) -> None:
        self.filesystem, self.root = filesystem, root.rstrip("/")

    def list_files(self) -> list[str]:
        """Of all files; none if there is no such folder yet."""
        try:
            with convert_to_os_error():
                self.filesystem.invalidate_cache(self.root)  # other replicas write too
                found = self.filesystem.ls(self.root, detail=True)
        except FileNotFoundError:
            return []
        return [one["name"].rpartition("/")[2] for one in found if one["type"] == "file"]

    def read_files(self, names: Sequence[str]) -> dict[str, bytes]:
        """What those that are there hold: all asked for at once, where the store can."""
        if not names:
            return {}
        with convert_to_os_error():
            held = self.filesystem.cat([f"{self.root}/{name}" for name in names], on_error="return")
            failed = [one for one in held.values() if isinstance(one, Exception)]
            for error in failed:
                if not isinstance(error, FileNotFoundError):
                    raise error
        return {path.rpartition("/")[2]: one for path, one in held.items() if isinstance(one, bytes)}

    def write_file(self, name: str, content: bytes) -> None:
        """The whole file, or none."""
        with convert_to_os_error():
            self.filesystem.pipe_file(f"{self.root}/{name}", content)

    def remove_file(self, name: str) -> None:
        """It may be gone already: replicas make room at once."""
        with suppress(FileNotFoundError), convert_to_os_error():
            self.filesystem.rm_file(f"{self.root}/{name}")


def open_directory(location: str) -> LocalDirectory | RemoteDirectory:
    """What reads and writes a place; nothing is looked at yet."""
    root = parse_location(location)
    return RemoteDirectory(*open_filesystem(location)) if isinstance(root, RemotePath) else LocalDirectory(root)


@contextmanager
def convert_to_os_error() -> Iterator[None]:
    """Each client of a store has exceptions of its own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
