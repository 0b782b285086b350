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

from equipoise.storage.object_store import RemotePath
from equipoise.storage.retry import without_retries

JOURNAL_POLL_SECONDS = 2.0  # between two looks at a journal behind a URL


def follow_run(journal: Path, max_examples: int, examples_seen: int = 0) -> "RunProgress":
    """Progress by a journal, wherever it is."""
    return (
        RemoteRunProgress(journal, max_examples, examples_seen)
        if isinstance(journal, RemotePath)
        else RunProgress(journal, max_examples, examples_seen)
    )


class FileOffset(NamedTuple):
    """How far a file has been read."""

    inode: int
    offset: int


class RunProgress:
    """Follows the laps that a trial writes to its journal."""

    def __init__(self, journal: Path, max_examples: int, examples_seen: int = 0) -> None:
        self.journal = journal
        self.max_examples = max_examples
        self.examples_seen = examples_seen
        self.read_position = FileOffset(0, 0)
        self.bar: Any = tqdm(total=max_examples, unit=" examples", unit_scale=True) if sys.stderr.isatty() else None

    def __enter__(self) -> "RunProgress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.show_new_laps()
        if self.bar is not None:
            self.bar.close()

    def show_new_laps(self) -> None:
        """Show the laps that came since the last look."""
        for lap in self._read_new_laps():
            self.examples_seen = lap["seen"]
            metric = "" if lap["metric"] is None else f"  metric {lap['metric']:.4f}"
            if self.bar is not None:
                if not self.bar.n:  # the rate is of training, without the cluster's start or what an earlier run did
                    self.bar.reset()
                    self.bar.initial = self.bar.n = self.examples_seen - lap["examples"]
                self.bar.set_postfix_str(f"loss {lap['loss']:.3f}{metric}")
                self.bar.update(self.examples_seen - self.bar.n)
            else:
                rate = lap["examples"] / lap["seconds"]
                left = max(0, self.max_examples - self.examples_seen) / rate
                print(
                    f"step {lap['step']:>6}  examples {self.examples_seen:>9,}  "
                    f"{rate:>9,.0f}/s  loss {lap['loss']:.4f}{metric}"
                    f"  {left:,.0f} s left at most",
                    flush=True,
                )

    def _read_new_laps(self) -> Iterator[dict[str, Any]]:
        """Laps beyond what was shown; workers that start again write the journal anew, as another file."""
        if not self.journal.exists():
            return
        with self.journal.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(self.read_position.offset if inode == self.read_position.inode else 0)
            for text in file:
                if not text.endswith(b"\n"):
                    break
                self.read_position = FileOffset(inode, file.tell())
                if (lap := json.loads(text))["seen"] > self.examples_seen:
                    yield lap


class RemoteRunProgress(RunProgress):
    """Follows a journal behind a URL: read whole every other second, by a thread, for an answer may take its time."""

    def __init__(self, journal: RemotePath, max_examples: int, examples_seen: int = 0) -> None:
        super().__init__(journal, max_examples, examples_seen)
        self.pool = ThreadPoolExecutor(1)
        self.pending_text: Future[str] | None = None
        self.next_read_at = 0.0
        self.store_unavailable = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self.store_unavailable:
            self.pending_text = self.pool.submit(self._read_journal)
        self.pool.shutdown()
        super().__exit__(kind, error, at)

    def _read_journal(self) -> str:
        """All of it; nothing where the store does not answer."""
        try:
            with without_retries():
                found = self.journal.read_text()
        except FileNotFoundError:
            found = ""
        except (OSError, ValueError) as error:
            if not self.store_unavailable:
                print(f"note: {error}; the run goes on, and waits for it where it must", file=sys.stderr, flush=True)
            self.store_unavailable = True
            return ""
        self.store_unavailable = False
        return found

    def _read_new_laps(self) -> Iterator[dict[str, Any]]:
        """Laps beyond what was shown, of the last reading that is done."""
        if self.pending_text is None and time.monotonic() > self.next_read_at:
            self.pending_text = self.pool.submit(self._read_journal)
        if self.pending_text is None or not self.pending_text.done():
            return
        text, self.pending_text, self.next_read_at = (
            self.pending_text.result(),
            None,
            time.monotonic() + JOURNAL_POLL_SECONDS,
        )
        for one in text.splitlines():
            if (lap := json.loads(one))["seen"] > self.examples_seen:
                yield lap
