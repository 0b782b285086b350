"""What was taken, on disk before it is acknowledged: a snapshot of the state, and all that came after it.

Whoever dies in the middle reads the snapshot, takes again what follows, and is where it was. A record that was cut off
was never acknowledged and is left out.
"""

import json
import os
import re
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.storage.atomic import atomic_write

ENTRY_HEADER = struct.Struct("<III")  # length of facts, length of rows, checksum
MAX_ENTRY_BYTES = 1 << 28  # bytes of a record
SNAPSHOT_PATTERN = re.compile(r"snapshot-([0-9]{1,18})\.npz")


class Journal:
    """A file that only grows, until a new snapshot takes its place."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.entry_count = 0
        """since the snapshot"""

    def append(self, facts: dict[str, Any], row_bytes: bytes) -> None:
        """One more record; it is in the system's hands when this returns."""
        head = json.dumps(facts, allow_nan=False).encode()
        data = ENTRY_HEADER.pack(len(head), len(row_bytes), zlib.crc32(head + row_bytes)) + head + row_bytes
        self.folder.mkdir(parents=True, exist_ok=True)  # someone may have tidied up
        path = self._journal_path(self.latest_generation())
        size = path.stat().st_size if path.exists() else 0
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError:  # a disk that is full: half a record would hide those after it
            os.truncate(path, size)
            raise
        self.entry_count += 1

    def read_entries(self) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The records after the snapshot."""
        path = self._journal_path(self.latest_generation())
        data = path.read_bytes() if path.exists() else b""
        at = 0
        while len(data) - at >= ENTRY_HEADER.size:
            first, second, checksum = ENTRY_HEADER.unpack_from(data, at)
            end = at + ENTRY_HEADER.size + first + second
            whole = data[at + ENTRY_HEADER.size : end]
            if first + second > MAX_ENTRY_BYTES or len(whole) < first + second or zlib.crc32(whole) != checksum:
                break
            yield json.loads(whole[:first]), whole[first:]
            self.entry_count += 1
            at = end
        if at < len(data):
            os.truncate(path, at)

    def latest_generation(self) -> int:
        """Which snapshot is the last."""
        found = [SNAPSHOT_PATTERN.fullmatch(path.name) for path in self.folder.glob("snapshot-*.npz")]
        return max((int(one[1]) for one in found if one), default=0)

    def write_snapshot(self, arrays: dict[str, Any]) -> None:
        """The whole state; what came before goes."""
        last = self.latest_generation()
        with atomic_write(self.folder / f"snapshot-{last + 1}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
        self.entry_count = 0
        for old in range(max(last - 1, 0), last + 1):
            for path in (self._journal_path(old), self.folder / f"snapshot-{old}.npz"):
                path.unlink(missing_ok=True)

    def load_snapshot(self) -> dict[str, Any] | None:
        """The last snapshot."""
        path = self.folder / f"snapshot-{self.latest_generation()}.npz"
        if not path.exists():
            return None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:  # NumPy leaves a broken one open
            return dict(held)

    def set_aside(self) -> None:
        """What cannot be read is kept for who wants to know why, and is in nobody's way."""
        aside = self.folder / f"set-aside-{time.time_ns()}"
        aside.mkdir()
        for path in self.folder.iterdir():
            if not path.name.startswith("set-aside-"):
                path.rename(aside / path.name)
        self.entry_count = 0

    def _journal_path(self, generation: int) -> Path:
        return self.folder / f"journal-{generation}"
