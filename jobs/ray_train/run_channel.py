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
from equipoise.storage import atomic as store
from equipoise.storage import retry
from equipoise.storage.object_store import Url

STOP_FILE = "stop"  # in the run's folder: the driver's word to all workers, on whatever node they are
JOURNAL = "laps.jsonl"
EVERY_SECONDS = 1.0  # at a URL
LAST_SECONDS = 20.0  # for the last laps to get there


@contextmanager
def onlookers(out: Path, done: list[Lap], rank: int) -> Iterator["Near | Far"]:
    """Those of a worker that has `done` laps so far, until the end of the block."""
    found = Far(out, done, rank) if isinstance(out, Url) else Near(out, done, rank)
    try:
        yield found
    finally:
        found.close()


class Near:
    """In a folder: every worker sees the word by itself."""

    def __init__(self, out: Path, done: list[Lap], rank: int) -> None:
        self.out, self.first = out, rank == 0
        if self.first:
            with store.whole(out / JOURNAL) as temporary:
                temporary.write_text("".join(line(lap) for lap in done))

    def add(self, lap: Lap) -> None:
        """Append a lap; a reader may see half of the last line."""
        if self.first:
            with (self.out / JOURNAL).open("a") as file:
                file.write(line(lap))

    def stop(self) -> bool:
        """Whether the word is there."""
        return (self.out / STOP_FILE).exists()

    def close(self) -> None:
        """Nothing is kept back."""


class Far:
    """Behind a URL: the first worker speaks and hears for all."""

    def __init__(self, out: Url, done: list[Lap], rank: int) -> None:
        self.out, self.lines = out, [line(lap) for lap in done]
        self.told = -1  # laps that were sent
        self.word, self.ended = False, Event()
        self.thread = Thread(target=self._attend, daemon=True) if rank == 0 else None
        if self.thread:
            self.thread.start()

    def add(self, lap: Lap) -> None:
        """Keep a lap to be sent."""
        self.lines.append(line(lap))

    def stop(self) -> bool:
        """Whether the word was there at the last look."""
        return self.word

    def close(self) -> None:
        """Send the last laps, if the store takes them by and by."""
        self.ended.set()
        if self.thread:
            self.thread.join(LAST_SECONDS)

    def _attend(self) -> None:
        """Until the end, once a second, and once more."""
        over = False
        while not over:
            over = self.ended.wait(EVERY_SECONDS)
            with suppress(OSError, ValueError), retry.at_once():  # those who look on can wait
                self._tell()
                self.word = self.word or (self.out / STOP_FILE).exists()

    def _tell(self) -> None:
        """Write the journal anew, if there is more to tell."""
        if (laps := len(self.lines)) > self.told:
            (self.out / JOURNAL).write_text("".join(self.lines[:laps]))
            self.told = laps


def line(lap: Lap) -> str:
    """A lap as a line of JSON."""
    return json.dumps(asdict(lap)) + "\n"
