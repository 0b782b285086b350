"""Channel between the workers and the driver of a run: finished laps go out, a request to stop comes in.

In a shared folder, laps are appended one by one. At a URL, where files cannot be appended to and answers may be slow,
a thread beside the training writes them: what cannot be sent is sent later, and training never waits for it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event, Thread

from equipoise.errors import EquipoiseError
from equipoise.runs.record import Lap
from equipoise.storage.atomic import atomic_write
from equipoise.storage.object_store import RemotePath
from equipoise.storage.retry import without_retries

STOP_FILE = "stop"  # in the run's folder: the driver creates it to stop all workers, on whatever node they are
LAP_JOURNAL_FILE = "laps.jsonl"
CHANNEL_SYNC_SECONDS = 1.0  # between two exchanges with a URL
CHANNEL_CLOSE_SECONDS = 20.0  # limit for sending the last laps


@contextmanager
def open_run_channel(out: Path, laps: list[Lap], rank: int) -> Iterator["LocalRunChannel | RemoteRunChannel"]:
    """Open the channel of a worker that has finished `laps`, and close it after the `with` block."""
    channel = RemoteRunChannel(out, laps, rank) if isinstance(out, RemotePath) else LocalRunChannel(out, laps, rank)
    try:
        yield channel
    finally:
        channel.close()


class LocalRunChannel:
    """Channel in a folder, where every worker checks for the stop file itself."""

    def __init__(self, out: Path, laps: list[Lap], rank: int) -> None:
        self.out, self.is_first_worker = out, rank == 0
        if self.is_first_worker:
            with atomic_write(out / LAP_JOURNAL_FILE) as temporary:
                temporary.write_text("".join(format_journal_line(lap) for lap in laps))

    def append_lap(self, lap: Lap) -> None:
        """Append a lap to the journal; a reader may see half of the last line."""
        if self.is_first_worker:
            with (self.out / LAP_JOURNAL_FILE).open("a") as file:
                file.write(format_journal_line(lap))

    def stop_requested(self) -> bool:
        """Return whether the driver has asked the workers to stop."""
        return (self.out / STOP_FILE).exists()

    def close(self) -> None:
        """Do nothing: every lap has been written already."""


class RemoteRunChannel:
    """Channel at a URL, which only the first worker reads and writes."""

    def __init__(self, out: RemotePath, laps: list[Lap], rank: int) -> None:
        self.out, self.journal_lines = out, [format_journal_line(lap) for lap in laps]
        self.sent_lap_count = -1  # laps in the journal at the URL; -1 before the first write
        self.stop_seen, self.closing = False, Event()
        self.thread = Thread(target=self._sync_until_closed, daemon=True) if rank == 0 else None
        if self.thread:
            self.thread.start()

    def append_lap(self, lap: Lap) -> None:
        """Queue a lap to be sent by the thread."""
        self.journal_lines.append(format_journal_line(lap))

    def stop_requested(self) -> bool:
        """Return whether the stop file was there at the last check."""
        return self.stop_seen

    def close(self) -> None:
        """Send the last laps, waiting a limited time for the store."""
        self.closing.set()
        if self.thread:
            self.thread.join(CHANNEL_CLOSE_SECONDS)

    def _sync_until_closed(self) -> None:
        """Write laps and look for the stop file every second, and once more when the channel is closed."""
        closed = False
        while not closed:
            closed = self.closing.wait(CHANNEL_SYNC_SECONDS)
            with suppress(OSError, EquipoiseError), without_retries():  # the journal can wait for the next time
                self._write_journal()
                self.stop_seen = self.stop_seen or (self.out / STOP_FILE).exists()

    def _write_journal(self) -> None:
        """Write the whole journal again if laps were added."""
        if (lap_count := len(self.journal_lines)) > self.sent_lap_count:
            (self.out / LAP_JOURNAL_FILE).write_text("".join(self.journal_lines[:lap_count]))
            self.sent_lap_count = lap_count


def format_journal_line(lap: Lap) -> str:
    """Format a lap as one line of JSON."""
    return json.dumps(asdict(lap)) + "\n"
