"""Index of all experiments below the results, kept up to date by a thread, and the state that pages show of it.

Whoever looks at a page wakes the thread, which looks for what changed lately, at most every `RECENT_SCAN_SECONDS`. All
folders are looked at far less often: so that this takes at most a hundredth of a processor, however many there are.
"""

import logging
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from services.site.experiments.folder_scan import FolderScan
from services.site.experiments.index_database import (
    INDEX_FILE,
    WRITER_CACHE_KIBIBYTES,
    connect_index,
    create_index,
    open_index,
)

RECENT_SCAN_SECONDS = 2.0  # between two short scans while somebody looks
FULL_SCAN_SECONDS, MAX_PAUSE_SECONDS = 60.0, 300.0  # between two scans of all folders, at least and at most
IDLE_FACTOR = 200  # pause after a scan of all folders, in multiples of its processor time
THREAD_STOP_SECONDS = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """State of the index, as pages show it."""

    version: int
    """grows with every change, so that an open page knows whether to load anew"""
    is_complete: bool
    """whether all folders were looked at since the site began"""


class RecordIndex:
    """Index of the results: a thread that keeps it up to date, and connections to ask it."""

    def __init__(self, results: Path, state_folder: Path) -> None:
        self.results, self.state_folder = results, state_folder
        self.version, self.is_complete = int(time.time() * 1000), False  # larger than before a restart
        self._wake, self._stop = threading.Event(), threading.Event()
        self._connections = threading.local()
        create_index(state_folder)
        self._thread = threading.Thread(target=self._keep_up_to_date, name="experiment index", daemon=True)
        self._started = False
        self._start_lock = threading.Lock()

    @property
    def state(self) -> IndexState:
        """State of the index now."""
        return IndexState(version=self.version, is_complete=self.is_complete)

    def wake(self) -> None:
        """Have the thread look for changes; it begins with the first call."""
        with self._start_lock:
            if not self._started:
                self._started = True
                self._thread.start()
        self._wake.set()

    def connect(self) -> sqlite3.Connection:
        """Return the connection of this thread."""
        connection: sqlite3.Connection | None = getattr(self._connections, "connection", None)
        if connection is None:
            connection = self._connections.connection = self.open_connection()
        return connection

    def open_connection(self) -> sqlite3.Connection:
        """Open a connection that the caller closes."""
        return open_index(self.state_folder)

    def update_now(self) -> None:
        """Look at all folders now, in this thread; the first time also at files that were changed in place."""
        scan = self._create_scan()
        scan.scan_all(check_files=not self.is_complete, should_stop=self._stop.is_set)
        self.is_complete = True
        self._note_change()

    def close(self) -> None:
        """Stop the thread, waiting until it has ended."""
        self._stop.set()
        self._wake.set()
        if self._started:
            self._thread.join(THREAD_STOP_SECONDS)

    def _create_scan(self) -> FolderScan:
        connection = connect_index(self.state_folder / INDEX_FILE, WRITER_CACHE_KIBIBYTES)
        return FolderScan(self.results, connection, self._note_change)

    def _note_change(self) -> None:
        self.version += 1

    def _keep_up_to_date(self) -> None:
        """Scan, again and again: shortly when woken, and all folders now and then."""
        scan: FolderScan | None = None
        next_full = 0.0
        while not self._stop.is_set():
            started_cpu, is_full = time.thread_time(), time.monotonic() >= next_full
            try:
                scan = scan or self._create_scan()
                self._scan_folders(scan, is_full)
            except Exception:  # whatever it is: the next scan tries again, since nobody would see that none comes
                logger.exception("cannot update the index of experiments; trying again")
                if scan is not None:
                    scan.roll_back()
            pause = min(IDLE_FACTOR * (time.thread_time() - started_cpu), MAX_PAUSE_SECONDS)
            if is_full:
                next_full, pause = time.monotonic() + max(FULL_SCAN_SECONDS, pause), 0.0
            self._stop.wait(max(RECENT_SCAN_SECONDS, pause))
            self._wake.wait(max(0.0, next_full - time.monotonic()))
            self._wake.clear()

    def _scan_folders(self, scan: FolderScan, is_full: bool) -> None:
        """Look at all folders, or at those that changed lately; the first look compares files, too."""
        if not is_full:
            scan.scan_recent(self._stop.is_set)
            return
        scan.scan_all(check_files=not self.is_complete, should_stop=self._stop.is_set)
        if not self.is_complete:
            self.is_complete = True
            self._note_change()
