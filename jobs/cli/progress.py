"""Progress of a training run: a bar on a terminal, elsewhere a line for each lap."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tqdm import tqdm

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.runs.record import Lap
from equipoise.storage.json_decoding import decode_json_bytes
from equipoise.storage.object_store import RemotePath
from equipoise.storage.retry import without_retries

JOURNAL_POLL_SECONDS = 2.0  # between two reads of a journal behind a URL


def ignore_lap(_: Lap) -> None:
    """Do nothing with a lap, where only the display needs it."""


def follow_run(
    journal: Path, max_examples: int | None, examples_seen: int = 0, log_lap: Callable[[Lap], None] = ignore_lap
) -> "RunProgress":
    """Build the progress display of a run from its lap journal, local or behind a URL; `log_lap` gets each lap too.

    Without `max_examples` it is not known how long the run takes at most.
    """
    if isinstance(journal, RemotePath):
        return RemoteRunProgress(journal, max_examples, examples_seen, log_lap)
    return RunProgress(journal, max_examples, examples_seen, log_lap)


class FileOffset(NamedTuple):
    """Position up to which a file has been read."""

    inode: int
    offset: int


class RunProgress:
    """Progress display that follows the laps which a run writes to its journal."""

    def __init__(
        self,
        journal: Path,
        max_examples: int | None,
        examples_seen: int = 0,
        log_lap: Callable[[Lap], None] = ignore_lap,
    ) -> None:
        self.journal = journal
        self.max_examples = max_examples
        self.examples_seen = examples_seen
        self.log_lap = log_lap
        self.all_reduce_note = ""
        self.global_batch = 0  # of the last lap
        self.averages_note = ""
        self.read_position = FileOffset(0, 0)
        self.has_new_laps = False
        self.initial_size = self._journal_size()
        self.bar: Any = tqdm(total=max_examples, unit=" examples", unit_scale=True) if sys.stderr.isatty() else None

    def __enter__(self) -> "RunProgress":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.show_new_laps()
        if self.bar is not None:
            self.bar.close()

    def has_progress(self) -> bool:
        """Return whether the workers have written a lap, shown or not; without delay, for a handler of signals."""
        size = self._journal_size()
        return self.has_new_laps or (size != self.initial_size and size.offset > 0)

    def _journal_size(self) -> FileOffset:
        """Return the end of the journal; workers that start or restart write it anew as another file."""
        try:
            status = self.journal.stat()
        except OSError:
            return FileOffset(0, 0)
        return FileOffset(status.st_ino, status.st_size)

    def show_new_laps(self) -> None:
        """Show the laps written since the last call."""
        for lap in self._read_new_laps():
            self.examples_seen, self.has_new_laps = lap.seen, True
            self.log_lap(lap)
            self._show_batch(lap)
            self._show_averages(lap)
            self._show_all_reduce(lap)
            if self.bar is not None:
                if not self.bar.n:  # the rate leaves out the cluster's start and the part before a resume
                    self.bar.reset()
                    self.bar.initial = self.bar.n = self.examples_seen - lap.examples
                self.bar.set_postfix_str(format_lap_results(lap))
                self.bar.update(self.examples_seen - self.bar.n)
            else:
                print(self._format_line(lap), flush=True)

    def _show_batch(self, lap: Lap) -> None:
        """Say where the batch has grown to a multiple of what it was (`--grow-batch`)."""
        before, self.global_batch = self.global_batch, lap.global_batch
        if before and lap.global_batch > before and lap.examples % (before * lap.steps) == 0:
            self._print_note(f"the global batch has grown from {before:,} to {lap.global_batch:,} examples")

    def _show_averages(self, lap: Lap) -> None:
        """Say what workers average, and how often, at the start and where that has changed."""
        note = describe_averages(lap)
        if note and note != self.averages_note:
            self._print_note(note)
        self.averages_note = note

    def _show_all_reduce(self, lap: Lap) -> None:
        """Say how workers sum if that has changed: at the start, and where `auto` chose anew."""
        if not lap.all_reduce:  # one worker
            return
        what = "gradients" if lap.average_interval is None else "weights"
        note = describe_all_reduce(lap.all_reduce, what)
        if note != self.all_reduce_note:
            self._print_note(note or f"{what} are summed by the backend")
        self.all_reduce_note = note

    def _print_note(self, note: str) -> None:
        print(note, flush=True) if self.bar is None else self.bar.write(note)

    def _format_line(self, lap: Lap) -> str:
        """Format a lap as a line of text."""
        rate = lap.examples / lap.seconds
        parts = [f"step {lap.step:>6}  examples {lap.seen:>9,}  {rate:>9,.0f}/s", format_lap_results(lap)]
        if self.max_examples is not None:
            parts.append(f"{max(0, self.max_examples - lap.seen) / rate:,.0f} s left at most")
        return "  ".join(filter(None, parts))

    def _read_new_laps(self) -> Iterator[Lap]:
        """Yield laps not yet shown.

        Workers that restart write the journal anew as another file, which is then read from its start.
        """
        if not self.journal.exists():
            return
        with self.journal.open("rb") as file:
            inode = os.fstat(file.fileno()).st_ino
            file.seek(self.read_position.offset if inode == self.read_position.inode else 0)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.read_position = FileOffset(inode, file.tell())
                if (lap := parse_journal_line(line, self.journal)).seen > self.examples_seen:
                    yield lap


def describe_averages(lap: Lap) -> str:
    """Return what workers average at intervals; an empty text where they sum gradients in every step."""
    if lap.average_interval is None:
        return ""
    interval = "in every step" if lap.average_interval == 1 else f"every {lap.average_interval:,} steps"
    if lap.averages_statistics:
        return (
            f"weights and moments of the optimizer are averaged {interval}\nbatch normalisation: running statistics are"
            f" averaged {interval}; between them each worker normalises by its own batches"
        )
    return f"weights and moments of the optimizer are averaged {interval}"


def describe_all_reduce(algorithms: Sequence[AppliedAllReduce], what: str = "gradients") -> str:
    """Return which algorithms sum gradients or weights; an empty text if the process group sums them all."""
    counts = Counter(algorithms)
    if len(counts) > 1:
        buckets = [f"{name} in {pluralize(count, 'bucket')}" for name, count in counts.items()]
        return f"{what} are summed by {', '.join(buckets)}"
    return "" if counts.keys() <= {"backend"} else f"{what} are summed by {algorithms[0]}"


def format_lap_results(lap: Lap) -> str:
    """Format the loss, the metric and the staleness of a lap, as far as they were measured."""
    results = {"loss": lap.loss, "metric": lap.metric}
    staleness = [] if lap.mean_staleness is None else [f"staleness {lap.mean_staleness:.1f}"]
    return "  ".join([*(f"{name} {value:.4f}" for name, value in results.items() if value is not None), *staleness])


def parse_journal_line(line: bytes, journal: Path) -> Lap:
    """Decode a line of a lap journal; refuse one that is not a lap."""
    return decode_json_bytes(line, Lap, code="run-damaged", problem=f"cannot read {journal}")


class RemoteRunProgress(RunProgress):
    """Progress display for a journal behind a URL, read whole every 2 s in a thread because the store may be slow."""

    def __init__(
        self,
        journal: RemotePath,
        max_examples: int | None,
        examples_seen: int = 0,
        log_lap: Callable[[Lap], None] = ignore_lap,
    ) -> None:
        super().__init__(journal, max_examples, examples_seen, log_lap)
        self.pool = ThreadPoolExecutor(1)
        self.pending_text: Future[str] | None = None
        self.next_read_at = 0.0
        self.store_unavailable = False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if not self.store_unavailable:
            self.pending_text = self.pool.submit(self._read_journal)
        self.pool.shutdown()
        super().__exit__(kind, error, at)

    def _journal_size(self) -> FileOffset:
        """Return the same always: a store may be slow to answer."""
        return FileOffset(0, 0)

    def _read_journal(self) -> str:
        """Read the whole journal; return an empty string if there is none yet or the store does not answer."""
        try:
            with without_retries():
                text = self.journal.read_text()
        except FileNotFoundError:
            text = ""
        except (OSError, EquipoiseError, UnicodeDecodeError) as error:
            if not self.store_unavailable:
                print(
                    f"note: {error}; the run continues, and waits where it needs the store", file=sys.stderr, flush=True
                )
            self.store_unavailable = True
            return ""
        self.store_unavailable = False
        return text

    def _read_new_laps(self) -> Iterator[Lap]:
        """Yield laps not yet shown from the last read that has finished, and start the next read when it is due."""
        if self.pending_text is None and time.monotonic() > self.next_read_at:
            self.pending_text = self.pool.submit(self._read_journal)
        if self.pending_text is None or not self.pending_text.done():
            return
        text, self.pending_text, self.next_read_at = (
            self.pending_text.result(),
            None,
            time.monotonic() + JOURNAL_POLL_SECONDS,
        )
        for line in text.encode().splitlines():
            if (lap := parse_journal_line(line, self.journal)).seen > self.examples_seen:
                yield lap
