"""Files by name in one place: a folder on this machine, or a bucket behind a URL."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from equipoise.storage import atomic as store
from equipoise.storage import object_store
from equipoise.storage.object_store import Url


class Folder:
    """Files of a folder on this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """Of all files; none if there is no such folder yet."""
        try:
            with os.scandir(self.root) as found:
                return [one.name for one in found if one.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """What those that can be read hold."""
        held = {}
        for name in names:
            with suppress(OSError):  # gone since it was listed, or on a damaged part of the disk
                held[name] = (self.root / name).read_bytes()
        return held

    def write(self, name: str, content: bytes) -> None:
        """The whole file, or none."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)  # pictures may show people: a new one is its owner's
        with store.whole(self.root / name) as temporary:
            temporary.write_bytes(content)

    def remove(self, name: str) -> None:
        """It may be gone already: replicas make room at once."""
        (self.root / name).unlink(missing_ok=True)


class Bucket:
    """Files of an object store: a put is atomic there. Whatever its client raises comes as an OSError."""

    def __init__(self, files: Any, root: str) -> None:
        self.files, self.root = files, root.rstrip("/")

    def names(self) -> list[str]:
        """Of all files; none if there is no such folder yet."""
        try:
            with as_os_error():
                self.files.invalidate_cache(self.root)  # other replicas write too
                found = self.files.ls(self.root, detail=True)
        except FileNotFoundError:
            return []
        return [one["name"].rpartition("/")[2] for one in found if one["type"] == "file"]

    def read(self, names: Sequence[str]) -> dict[str, bytes]:
        """What those that are there hold: all asked for at once, where the store can."""
        if not names:
            return {}
        with as_os_error():
            held = self.files.cat([f"{self.root}/{name}" for name in names], on_error="return")
            failed = [one for one in held.values() if isinstance(one, Exception)]
            for error in failed:
                if not isinstance(error, FileNotFoundError):
                    raise error
        return {path.rpartition("/")[2]: one for path, one in held.items() if isinstance(one, bytes)}

    def write(self, name: str, content: bytes) -> None:
        """The whole file, or none."""
        with as_os_error():
            self.files.pipe_file(f"{self.root}/{name}", content)

    def remove(self, name: str) -> None:
        """It may be gone already: replicas make room at once."""
        with suppress(FileNotFoundError), as_os_error():
            self.files.rm_file(f"{self.root}/{name}")


def opened(place: str) -> Folder | Bucket:
    """What reads and writes a place; nothing is looked at yet."""
    root = object_store.place(place)
    return Bucket(*object_store.opened(place)) if isinstance(root, Url) else Folder(root)


@contextmanager
def as_os_error() -> Iterator[None]:
    """Each client of a store has exceptions of its own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
