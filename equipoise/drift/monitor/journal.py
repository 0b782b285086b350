"""Write-ahead journal: every entry is written to a file before it is acknowledged, after a snapshot of the whole state.

After a crash, load the snapshot and apply the entries that follow to reach the same state. An entry that was cut off
was never acknowledged and is left out.

Why by hand: docs/decisions/0004-drift-journal.md.
"""

import os
import re
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from equipoise.drift.monitor.entries import JournalEntry
from equipoise.storage.atomic import atomic_write
from equipoise.type_aliases import AnyArray

ENTRY_HEADER = struct.Struct("<III")  # bytes of the JSON facts, bytes of the rows, CRC-32 of both
MAX_ENTRY_BYTES = 1 << 28  # a longer entry is taken for a damaged one
ENTRY_DECODER = msgspec.json.Decoder(JournalEntry)
SNAPSHOT_PATTERN = re.compile(r"snapshot-([0-9]{1,18})\.npz")


class Journal:
    """Append-only file of entries since the last snapshot of the state."""

    def __init__(self, folder: Path, max_entry_bytes: int = MAX_ENTRY_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.max_entry_bytes = folder, max_entry_bytes
        self.entry_count = 0
        """entries since the last snapshot"""

    def append(self, entry: JournalEntry, row_bytes: bytes) -> None:
        """Append an entry; the operating system has it when this returns. Refuse one that could not be read back."""
        head = msgspec.json.encode(entry)
        if (length := len(head) + len(row_bytes)) > self.max_entry_bytes:
            raise ValueError(
                f"cannot append {length:,} bytes to the journal: an entry has at most {self.max_entry_bytes:,}"
            )
        data = ENTRY_HEADER.pack(len(head), len(row_bytes), zlib.crc32(head + row_bytes)) + head + row_bytes
        self.folder.mkdir(parents=True, exist_ok=True)  # it may have been deleted meanwhile
        path = self._journal_path(self.latest_generation())
        size = path.stat().st_size if path.exists() else 0
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError:  # disk full: half an entry would hide those after it
            os.truncate(path, size)
            raise
        self.entry_count += 1

    def read_entries(self) -> Iterator[tuple[JournalEntry, bytes]]:
        """Yield the entries after the last snapshot, and cut off an incomplete one at the end."""
        path = self._journal_path(self.latest_generation())
        data = path.read_bytes() if path.exists() else b""
        offset = 0
        while len(data) - offset >= ENTRY_HEADER.size:
            facts_length, rows_length, checksum = ENTRY_HEADER.unpack_from(data, offset)
            length = facts_length + rows_length
            end = offset + ENTRY_HEADER.size + length
            body = data[offset + ENTRY_HEADER.size : end]
            if length > self.max_entry_bytes or len(body) < length or zlib.crc32(body) != checksum:
                break
            yield ENTRY_DECODER.decode(body[:facts_length]), body[facts_length:]
            self.entry_count += 1
            offset = end
        if offset < len(data):
            os.truncate(path, offset)

    def latest_generation(self) -> int:
        """Return the number of the latest snapshot, 0 before the first."""
        matches = [SNAPSHOT_PATTERN.fullmatch(path.name) for path in self.folder.glob("snapshot-*.npz")]
        return max((int(match[1]) for match in matches if match), default=0)

    def write_snapshot(self, arrays: Mapping[str, AnyArray]) -> None:
        """Write the whole state as a new snapshot, and delete the older snapshots and journals."""
        last = self.latest_generation()
        with atomic_write(self.folder / f"snapshot-{last + 1}.npz") as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        self.entry_count = 0
        for generation in range(max(last - 1, 0), last + 1):
            for path in (self._journal_path(generation), self.folder / f"snapshot-{generation}.npz"):
                path.unlink(missing_ok=True)

    def load_snapshot(self) -> dict[str, AnyArray] | None:
        """Load the arrays of the latest snapshot, or None if there is none."""
        path = self.folder / f"snapshot-{self.latest_generation()}.npz"
        if not path.exists():
            return None
        with (
            path.open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):  # by path, NumPy leaks the handle of a broken file
            return dict(arrays)

    def set_aside(self) -> None:
        """Move unreadable files to a new subfolder, where they can be inspected, and begin with an empty journal."""
        aside = self.folder / f"set-aside-{time.time_ns()}"
        aside.mkdir()
        for path in self.folder.iterdir():
            if not path.name.startswith("set-aside-"):
                path.rename(aside / path.name)
        self.entry_count = 0

    def _journal_path(self, generation: int) -> Path:
        return self.folder / f"journal-{generation}"
