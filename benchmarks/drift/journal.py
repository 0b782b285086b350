"""What an entry of the drift journal costs, against SQLite: python -m benchmarks.drift.journal.

Appends reports of one stream with the sums of 10 classes, in turns of 200 entries, as between two snapshots. Both give
an entry to the operating system before they return, and neither waits for the disk. Prints the median of all turns.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from equipoise.drift.charts.sums import SumsLayout
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.random_fourier import DIRECTION_COUNT
from equipoise.drift.monitor.entries import ReportEntry, TickEntry
from equipoise.drift.monitor.journal import Journal
from equipoise.drift.monitor.monitor import ENTRIES_PER_SNAPSHOT

ROUNDS = 30
ROW = SumsLayout(10, len(IMAGE_SCHEMA), 2 * DIRECTION_COUNT).empty_row()


def build_entry(number: int) -> ReportEntry:
    """Build the entry of a report with one tick."""
    tick = TickEntry(number, 1_700_000_000_000 + number, [("digits/0123456789ab", len(ROW))])
    return ReportEntry(replica="0" * 32, clock=tick.clock, leaves=False, confirmed=number, now=1.7e9, ticks=[tick])


def time_appends(append: Callable[[ReportEntry, bytes], None]) -> float:
    """Return the seconds that an entry takes."""
    started_at = time.perf_counter()
    for number in range(ENTRIES_PER_SNAPSHOT):
        append(build_entry(number), ROW.tobytes())
    return (time.perf_counter() - started_at) / ENTRIES_PER_SNAPSHOT


def open_sqlite(path: Path) -> Callable[[ReportEntry, bytes], None]:
    """Return a function that appends an entry to a new database, in a transaction of its own."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")  # a commit waits for no disk, only a checkpoint does
    connection.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, facts BLOB, rows BLOB)")

    def append(entry: ReportEntry, row_bytes: bytes) -> None:
        connection.execute("INSERT INTO entries (facts, rows) VALUES (?, ?)", (msgspec.json.encode(entry), row_bytes))

    return append


def main() -> None:
    """Print the cost of an entry of each."""
    seconds: dict[str, list[float]] = {"journal": [], "sqlite": []}
    for _ in range(ROUNDS):
        with TemporaryDirectory() as folder:
            seconds["journal"].append(time_appends(Journal(Path(folder, "journal")).append))
            seconds["sqlite"].append(time_appends(open_sqlite(Path(folder, "entries.db"))))
    ratios = [ours / other for ours, other in zip(seconds["journal"], seconds["sqlite"], strict=True)]
    print(f"entries of {ROW.nbytes:,} bytes of sums, {ENTRIES_PER_SNAPSHOT} in each of {ROUNDS} rounds")
    for name, values in seconds.items():
        print(f"{name:8} {1e6 * median(values):6.0f} us an entry")
    print(f"journal / sqlite {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
