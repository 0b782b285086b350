"""What a person sees while a trial runs: a bar on a terminal, a line a lap elsewhere."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from tqdm import tqdm


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
