"""What a person sees while a trial runs: a bar on a terminal, a line a lap elsewhere."""

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tqdm import tqdm

from equipoise.storage import retry
from equipoise.storage.object_store import Url

EVERY_SECONDS = 2.0  # between two looks at a journal behind a URL


def following(journal: Path, cap: int, seen: int = 0) -> "Progress":
    """Progress by a journal, wherever it is."""
    return FarProgress(journal, cap, seen) if isinstance(journal, Url) else Progress(journal, cap, seen)


class Place(NamedTuple):
    """How far a file has been read."""

    inode: int
    offset: int


class Progress:
    """Follows the laps that a trial writes to its journal."""

    def __init__(self, journal: Path, cap: int, seen: int = 0) -> None:
        self.journal = journal
        self.cap = cap
        self.seen = seen
        self.read = Place(0, 0)
        self.bar: Any = tqdm(total=cap, unit=" examples", unit_scale=True) if sys.stderr.isatty() else None

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.look()
        if self.bar is not None:
            self.bar.close()

    def look(self) -> None:
        """Show the laps that came since the last look."""
        for lap in self._fresh():
            self.seen = lap["seen"]
            metric = "" if lap["metric"] is None else f"  metric {lap['metric']:.4f}"
            if self.bar is not None:
                if not self.bar.n:  # the rate is of training, without the cluster's start or what an earlier run did
                    self.bar.reset()
                    self.bar.initial = self.bar.n = self.seen - lap["examples"]
                self.bar.set_postfix_str(f"loss {lap['loss']:.3f}{metric}")
                self.bar.update(self.seen - self.bar.n)
            else:
                rate = lap["examples"] / lap["seconds"]
                left = max(0, self.cap - self.seen) / rate
                print(
                    f"step {lap['step']:>6}  examples {self.seen:>9,}  {rate:>9,.0f}/s  loss {lap['loss']:.4f}{metric}"
                    f"  {left:,.0f} s left at most",
                    flush=True,
                )

    def _fresh(self) -> Iterator[dict[str, Any]]:
        """Laps beyond what was shown; workers that start again write the journal anew, as another file."""
        if not self.journal.exists():
            return
        with self.journal.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(self.read.offset if inode == self.read.inode else 0)
            for text in file:
                if not text.endswith(b"\n"):
                    break
                self.read = Place(inode, file.tell())
                if (lap := json.loads(text))["seen"] > self.seen:
                    yield lap


class FarProgress(Progress):
    """Follows a journal behind a URL: read whole every other second, by a thread, for an answer may take its time."""

    def __init__(self, journal: Url, cap: int, seen: int = 0) -> None:
        super().__init__(journal, cap, seen)
        self.pool = ThreadPoolExecutor(1)
        self.reading: Future[str] | None = None
        self.due = 0.0
        self.away = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self.away:
            self.reading = self.pool.submit(self._read)
        self.pool.shutdown()
        super().__exit__(kind, error, at)

    def _read(self) -> str:
        """All of it; nothing where the store does not answer."""
        try:
            with retry.at_once():
                found = self.journal.read_text()
        except FileNotFoundError:
            found = ""
        except (OSError, ValueError) as error:
            if not self.away:
                print(f"note: {error}; the run goes on, and waits for it where it must", file=sys.stderr, flush=True)
            self.away = True
            return ""
        self.away = False
        return found

    def _fresh(self) -> Iterator[dict[str, Any]]:
        """Laps beyond what was shown, of the last reading that is done."""
        if self.reading is None and time.monotonic() > self.due:
            self.reading = self.pool.submit(self._read)
        if self.reading is None or not self.reading.done():
            return
        text, self.reading, self.due = self.reading.result(), None, time.monotonic() + EVERY_SECONDS
        for one in text.splitlines():
            if (lap := json.loads(one))["seen"] > self.seen:
                yield lap
