"""How a search stands, as a table that stays in place on a terminal and as a line a trial otherwise."""

import sys
import time
from types import TracebackType

import pandas as pd
from rich.live import Live
from rich.table import Table

from equipoise.planning.search import SettingResult


class SweepStatus:
    """Shown while trials run; entered before the first and left after the last."""

    def __init__(self, workers_by_batch: dict[int, int], deadline: float) -> None:
        self.workers_by_batch, self.deadline = workers_by_batch, deadline
        self.live = Live(auto_refresh=False) if sys.stdout.isatty() else None

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
        """Without the terminal: Tune keeps a copy of all that it was given."""
        return {**self.__dict__, "live": None}

    def show(self, finished_trials: pd.DataFrame, running_count: int, setting_results: list[SettingResult]) -> None:
        """The state after a trial ended."""
        facts = {
            "trials": f"{len(finished_trials)} done, {running_count} running",
            "best so far": self.format_setting(setting_results[0]) if setting_results else "none yet",
            "runner-up": self.format_setting(setting_results[1]) if len(setting_results) > 1 else "",
        }
        if self.deadline < float("inf"):
            facts["left"] = f"{max(0.0, self.deadline - time.time()):.0f} s"
        if self.live:
            self.live.update(build_key_value_table(facts), refresh=True)
        else:
            print("; ".join(f"{name} {fact}" for name, fact in facts.items() if fact), flush=True)

    def format_setting(self, result: SettingResult) -> str:
        """A setting with its time."""
        workers = self.workers_by_batch[result.global_batch]
        time = f"{result.seconds:.3g} s" if result.seconds < float("inf") else "not there yet"
        seeds = f"{result.num_seeds} seed{'s' * (result.num_seeds > 1)}"
        return f"{workers} x {result.global_batch // workers} at lr {result.lr:.3g}: {time} ({seeds})"


def build_key_value_table(text_by_name: dict[str, str]) -> Table:
    """Facts by name."""
    table = Table.grid(padding=(0, 2))
    for name, fact in text_by_name.items():
        table.add_row(name, fact)
    return table
