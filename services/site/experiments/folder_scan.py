"""Scan of the results: folders that changed since they were looked at last, and only the files in them that are new.

All writers of results replace files by renaming, which changes the time of the folder. A first scan of a process
compares the files of all folders, which also finds those that others wrote in place. The list of folders lies in the
database, so that a scan that is killed goes on where it was, and needs the same memory for any number of them.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from services.site.experiments.folder_listing import FolderListing, list_folder
from services.site.experiments.index_columns import INDEX_COLUMNS
from services.site.experiments.index_database import PENDING
from services.site.experiments.index_rows import FileStamp, limit_integer

FOLDERS_PER_BATCH = 500
COMMIT_SECONDS = 0.25  # of writing between two commits: pages then show what was read so far
RECENT_NANOSECONDS = 2_000_000_000  # a folder that changed so lately may change again without another time
MAX_HOT_FOLDERS, MAX_PARENTS = 500, 2000  # folders that a short scan looks at
INSERT_ROW = f"INSERT OR REPLACE INTO entries VALUES ({', '.join('?' * (4 + len(INDEX_COLUMNS)))})"  # noqa: S608
SELECT_FOLDERS = "SELECT path, mtime_ns FROM folders"
MARK_PENDING = f"UPDATE folders SET mtime_ns = {PENDING} WHERE path = ?"  # noqa: S608 - a number of ours
FolderRow = tuple[bytes, int]
"""path of a folder below the results, and its time of change in nanoseconds"""


class FolderScan:
    """Scanner of the results folder, with its own connection to the index; one thread uses it."""

    def __init__(self, root: Path, connection: sqlite3.Connection, on_change: Callable[[], None]) -> None:
        self.root = root.resolve()  # of a link to the results, the time of change would be that of the link
        self.connection, self.on_change = connection, on_change
        self.commit_at = 0.0
        self.connection.execute("INSERT OR IGNORE INTO folders VALUES (x'', ?, 0)", (PENDING,))

    def scan_all(self, check_files: bool = False, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Look at every folder for changes; with `check_files` compare the files of folders without one, too."""
        first = b""
        while not should_stop() and (folders := self.select_folders("WHERE path >= ? ORDER BY path", first)):
            first = folders[-1][0] + b"\0"
            self.mark_changed(folders, check_files)
        self.read_pending(should_stop)

    def scan_recent(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Look at the folders that changed last, and at those in which new ones may appear."""
        recent = f"{SELECT_FOLDERS} ORDER BY mtime_ns DESC LIMIT {MAX_HOT_FOLDERS}"
        parents = f"{SELECT_FOLDERS} WHERE has_folders ORDER BY mtime_ns DESC LIMIT {MAX_PARENTS}"
        self.mark_changed({row for query in (recent, parents) for row in self.connection.execute(query)})
        self.read_pending(should_stop)

    def select_folders(self, condition: str, *values: bytes) -> list[FolderRow]:
        """Return the first folders that meet a condition."""
        return self.connection.execute(f"{SELECT_FOLDERS} {condition} LIMIT {FOLDERS_PER_BATCH}", values).fetchall()

    def mark_changed(self, folders: Iterable[FolderRow], all_of_them: bool = False) -> None:
        """Mark the folders that changed to be read, and forget those that have gone, with all that lay in them."""
        changed, gone = [], []
        for path, mtime_ns in folders:
            try:
                found = read_folder_time(self.root / os.fsdecode(path))
            except (FileNotFoundError, NotADirectoryError):
                gone.append(path)
            except OSError:
                continue  # cannot be reached now: what was read stays
            else:
                if found != mtime_ns or all_of_them:
                    changed.append((path,))
        if not changed and not gone:
            return
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(MARK_PENDING, changed)
        for path in gone:
            for table, column in (("entries", "folder"), ("folders", "path")):
                below = f"{column} = ? OR ({column} >= ? AND {column} < ?)"
                self.connection.execute(f"DELETE FROM {table} WHERE {below}", (path, *find_bounds(path)))  # noqa: S608
        self.connection.execute("COMMIT")
        if gone:
            self.on_change()

    def read_pending(self, should_stop: Callable[[], bool]) -> None:
        """Read the folders that are marked, and those found in them, until none is left."""
        while not should_stop() and (folders := self.select_folders(f"WHERE mtime_ns = {PENDING}")):
            self._begin()
            for path, _ in folders:
                if should_stop():
                    break
                self.read_folder(path)
            self.connection.execute("COMMIT")
            self.on_change()

    def read_folder(self, path: bytes) -> None:
        """Read what changed in one folder, and note the folders in it; inside of a transaction."""
        folder = self.root / os.fsdecode(path)
        try:
            mtime_ns = read_folder_time(folder)
            listing = list_folder(self.root, os.fsdecode(path))
        except OSError:  # it has gone, or cannot be listed: looked at again in a later scan
            self.connection.execute("UPDATE folders SET mtime_ns = 1 WHERE path = ?", (path,))
            return
        self._note_folders(path, listing)
        self._read_entries(path, listing)
        if time.time_ns() - mtime_ns < RECENT_NANOSECONDS:
            mtime_ns -= 1  # a time that the folder has not: it is read once more
        values = (mtime_ns, bool(listing.folder_names), path)
        self.connection.execute("UPDATE folders SET mtime_ns = ?, has_folders = ? WHERE path = ?", values)

    def _read_entries(self, path: bytes, listing: FolderListing) -> None:
        """Write the rows of a folder that are new or changed, and delete those whose files have gone."""
        query = "SELECT path, file_mtime_ns, file_size FROM entries WHERE folder = ?"
        known = {
            name: FileStamp(mtime_ns=mtime, size=size) for name, mtime, size in self.connection.execute(query, (path,))
        }
        seen: set[str] = set()
        for row in listing.iterate_rows(known, seen):
            self.connection.execute(INSERT_ROW, row.as_tuple(path))
            if time.monotonic() > self.commit_at:
                self.connection.execute("COMMIT")
                self.on_change()
                self._begin()
        removed = [(name,) for name in known if name not in seen]
        self.connection.executemany("DELETE FROM entries WHERE path = ?", removed)

    def _note_folders(self, path: bytes, listing: FolderListing) -> None:
        """Note the folders in a folder; if there were others, look which of them have gone."""
        prefix = path + b"/" if path else b""
        found = [(prefix + os.fsencode(name), PENDING) for name in listing.folder_names]
        self.connection.executemany("INSERT OR IGNORE INTO folders VALUES (?, ?, 0)", found)
        known = self._count_children(prefix)
        if known == len(found):
            return
        present = {name for name, _ in found}
        children = self.connection.execute(f"{SELECT_FOLDERS} WHERE {CHILDREN}", child_values(prefix)).fetchall()
        gone = [(name, mtime) for name, mtime in children if name not in present]
        self.connection.execute("COMMIT")
        self.mark_changed(gone)
        self._begin()

    def _count_children(self, prefix: bytes) -> int:
        query = f"SELECT count(*) FROM folders WHERE {CHILDREN}"  # noqa: S608 - a text of ours
        count: int = self.connection.execute(query, child_values(prefix)).fetchone()[0]
        return count

    def roll_back(self) -> None:
        """End a transaction that a failure has left open; otherwise no later scan could begin one."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.commit_at = time.monotonic() + COMMIT_SECONDS


def read_folder_time(folder: Path) -> int:
    """Return the time of change of a folder in nanoseconds, as the index holds it: never `PENDING`."""
    mtime_ns = limit_integer(folder.lstat().st_mtime_ns)
    return mtime_ns if mtime_ns != PENDING else PENDING - 1  # such as of an archive without times


CHILDREN = "path >= ? AND path < ? AND instr(substr(path, ?), x'2f') = 0"
"""condition of the folders that lie directly in one"""


def find_bounds(path: bytes) -> tuple[bytes, bytes]:
    """Return the bounds between which the paths of all folders in a folder lie."""
    return path + b"/", path + b"0"  # the byte after that of a slash


def child_values(prefix: bytes) -> tuple[bytes, bytes, int]:
    """Return the values of `CHILDREN` for the folder whose path with a slash is `prefix`; empty for the results."""
    low, high = (prefix, prefix[:-1] + b"0") if prefix else (b"\0", b"\xff")
    return low, high, len(prefix) + 1
