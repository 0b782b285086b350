"""Between a worker and those outside: the laps that they look at, and the word by which they stop it.

In a folder that all nodes share, lap by lap. Behind a URL, where nothing can be appended to and an answer may be long
in coming, by a thread beside the training: what cannot be told is told later, and training never waits for it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread

from equipoise.runs.record import Lap
from equipoise.storage.atomic import atomic_write
from equipoise.storage.object_store import RemotePath
from equipoise.storage.retry import without_retries

STOP_FILE = "stop"  # in the run's folder: the driver's word to all workers, on whatever node they are
LAP_JOURNAL_FILE = "laps.jsonl"
CHANNEL_SYNC_SECONDS = 1.0  # at a URL
CHANNEL_CLOSE_SECONDS = 20.0  # for the last laps to get there


@contextmanager
def open_run_channel(out: Path, laps: list[Lap], rank: int) -> Iterator["LocalRunChannel | RemoteRunChannel"]:
    """Those of a worker that has `done` laps so far, until the end of the block."""
    found = RemoteRunChannel(out, laps, rank) if isinstance(out, RemotePath) else LocalRunChannel(out, laps, rank)
    try:
        yield found
    finally:
        found.close()


class LocalRunChannel:
    """In a folder: every worker sees the word by itself."""

    def __init__(self, out: Path, laps: list[Lap], rank: int) -> None:
        self.out, self.is_first_worker = out, rank == 0
        if self.is_first_worker:
            with atomic_write(out / LAP_JOURNAL_FILE) as temporary:
                temporary.write_text("".join(format_journal_line(lap) for lap in laps))

    def append_lap(self, lap: Lap) -> None:
        """Append a lap; a reader may see half of the last line."""
        if self.is_first_worker:
            with (self.out / LAP_JOURNAL_FILE).open("a") as file:
                file.write(format_journal_line(lap))

    def stop_requested(self) -> bool:
        """Whether the word is there."""
        return (self.out / STOP_FILE).exists()

    def close(self) -> None:
        """Nothing is kept back."""


class RemoteRunChannel:
    """Behind a URL: the first worker speaks and hears for all."""

    def __init__(self, out: RemotePath, laps: list[Lap], rank: int) -> None:
        self.out, self.journal_lines = out, [format_journal_line(lap) for lap in laps]
        self.sent_lap_count = -1  # laps that were sent
        self.stop_seen, self.closing = False, Event()
        self.thread = Thread(target=self._sync_until_closed, daemon=True) if rank == 0 else None
        if self.thread:
            self.thread.start()

    def append_lap(self, lap: Lap) -> None:
        """Keep a lap to be sent."""
        self.journal_lines.append(format_journal_line(lap))

    def stop_requested(self) -> bool:
        """Whether the word was there at the last look."""
        return self.stop_seen

    def close(self) -> None:
        """Send the last laps, if the store takes them by and by."""
        self.closing.set()
        if self.thread:
            self.thread.join(CHANNEL_CLOSE_SECONDS)

    def _sync_until_closed(self) -> None:
        """Until the end, once a second, and once more."""
        over = False
        while not over:
            over = self.closing.wait(CHANNEL_SYNC_SECONDS)
            with suppress(OSError, ValueError), without_retries():  # those who look on can wait
                self._write_journal()
                self.stop_seen = self.stop_seen or (self.out / STOP_FILE).exists()

    def _write_journal(self) -> None:
        """Write the journal anew, if there is more to tell."""
        if (laps := len(self.journal_lines)) > self.sent_lap_count:
            (self.out / LAP_JOURNAL_FILE).write_text("".join(self.journal_lines[:laps]))
            self.sent_lap_count = laps


def format_journal_line(lap: Lap) -> str:
    """A lap as a line of JSON."""
    return json.dumps(asdict(lap)) + "\n"
