"""How a search stands, as a table that stays in place on a terminal and as a line a trial otherwise."""

import sys
import time
from types import TracebackType

import pandas as pd
from rich.live import Live
from rich.table import Table

from equipoise.planning.search import Standing


class Board:
    """Shown while trials run; entered before the first and left after the last."""

    def __init__(self, workers_at: dict[int, int], until: float) -> None:
        self.workers_at, self.until = workers_at, until
        self.live = Live(auto_refresh=False) if sys.stdout.isatty() else None

    def __enter__(self) -> "Board":
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def __getstate__(self) -> dict[str, object]:
        """Without the terminal: Tune keeps a copy of all that it was given."""
        return {**self.__dict__, "live": None}

    def show(self, finished: pd.DataFrame, running: int, standings: list[Standing]) -> None:
        """The state after a trial ended."""
        facts = {
            "trials": f"{len(finished)} done, {running} running",
            "best so far": self.told(standings[0]) if standings else "none yet",
            "runner-up": self.told(standings[1]) if len(standings) > 1 else "",
        }
        if self.until < float("inf"):
            facts["left"] = f"{max(0.0, self.until - time.time()):.0f} s"
        if self.live:
            self.live.update(grid(facts), refresh=True)
        else:
            print("; ".join(f"{name} {fact}" for name, fact in facts.items() if fact), flush=True)

    def told(self, one: Standing) -> str:
        """A setting with its time."""
        workers = self.workers_at[one.global_batch]
        time = f"{one.seconds:.3g} s" if one.seconds < float("inf") else "not there yet"
        seeds = f"{one.seeds} seed{'s' * (one.seeds > 1)}"
        return f"{workers} x {one.global_batch // workers} at lr {one.lr:.3g}: {time} ({seeds})"


def grid(facts: dict[str, str]) -> Table:
    """Facts by name."""
    table = Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        table.add_row(name, fact)
    return table
