"""Status of a sweep: a table updated in place on a terminal, elsewhere a line when the best setting changes."""

import sys
import time
from types import TracebackType

import pandas as pd
from rich.live import Live
from rich.table import Table

from equipoise.formatting import format_number, pluralize
from equipoise.planning.search import SettingResult

MIN_LINE_SECONDS = 5.0  # between two lines with the same best setting


class SweepStatus:
    """Status display of a sweep, as a context manager around its trials."""

    def __init__(self, workers_by_batch: dict[int, int], deadline: float) -> None:
        self.workers_by_batch, self.deadline = workers_by_batch, deadline
        self.live = Live(auto_refresh=False) if sys.stdout.isatty() else None
        self.printed_best: tuple[int, float] | None = None
        self.printed_at = -MIN_LINE_SECONDS

    def __enter__(self) -> "SweepStatus":
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()

    def __getstate__(self) -> dict[str, object]:
        """Return the state without the terminal display, because Tune pickles what it is given."""
        return {**self.__dict__, "live": None}

    def show(self, finished_trials: pd.DataFrame, running_count: int, setting_results: list[SettingResult]) -> None:
        """Show the counts of trials, the two best settings and the time left."""
        facts = {
            "trials": f"{len(finished_trials)} done, {running_count} running",
            "best so far": self.format_setting(setting_results[0]) if setting_results else "none yet",
            "runner-up": self.format_setting(setting_results[1]) if len(setting_results) > 1 else "",
        }
        if self.deadline < float("inf"):
            facts["left"] = f"{max(0.0, self.deadline - time.time()):.0f} s"
        if self.live:
            self.live.update(build_key_value_table(facts), refresh=True)
            return
        best = setting_results[0][:2] if setting_results else None
        if (
            self.printed_at is None
            or best != self.printed_best
            or time.monotonic() > self.printed_at + MIN_LINE_SECONDS
        ):
            self.printed_best, self.printed_at = best, time.monotonic()
            print("; ".join(f"{name} {fact}" for name, fact in facts.items() if fact), flush=True)

    def format_setting(self, result: SettingResult) -> str:
        """Format a setting with its time to the target and its number of seeds."""
        workers = self.workers_by_batch[result.global_batch]
        time_text = f"{format_number(result.seconds)} s" if result.seconds < float("inf") else "target not reached yet"
        seeds = pluralize(result.num_seeds, "seed")
        return f"{workers} x {result.global_batch // workers} at lr {result.lr:.3g}: {time_text} ({seeds})"


def build_key_value_table(text_by_name: dict[str, str]) -> Table:
    """Build a table of two columns, names and their texts."""
    table = Table.grid(padding=(0, 2))
    for name, text in text_by_name.items():
        table.add_row(name, text)
    return table
