"""Trials with other ways of exchange, each in one process that hosts all workers, paired by seed with exact sums."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.config import TrainConfig
from equipoise.formatting import format_number
from equipoise.planning.exchange_choice.exact_fits import ExactFits
from equipoise.planning.exchange_choice.exchange_bounds import ExchangeBound, bound_exchange
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchange_choice.next_trial import limit_trial_examples, suggest_exchange_trial
from equipoise.planning.exchange_choice.trial_state import ExchangeTrial
from equipoise.planning.exchanges.predict_exchanges import EXACT_TEXT
from equipoise.planning.exchanges.training_options import name_exchange, replace_exchange
from equipoise.planning.search import Suggestion
from equipoise.runs.record import Record
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, load_finished_trials, record_to_row, trial_file_stem
from jobs.ray_tune.tuner import SearchAdapter, SweepTrials

EXCHANGE_TRIALS_FOLDER = "exchanges"  # in the folder of the trials with exact sums
EXCHANGE_TRIAL_COLUMNS = ["exchange", "workers", *FINISHED_TRIAL_COLUMNS[:3], "momentum", *FINISHED_TRIAL_COLUMNS[3:]]
ANY_WORKERS = 0  # of a run with exact sums: they learn the same on any number of workers


def exchange_trials_folder(trials_folder: Path) -> Path:
    """Return the folder of the trials with other ways of exchange."""
    return trials_folder / EXCHANGE_TRIALS_FOLDER


def load_exchange_trials(trials_folder: Path, base: TrainConfig) -> list[Record]:
    """Read the records of all trials with other ways of exchange that ended."""
    return load_finished_trials(exchange_trials_folder(trials_folder), base, with_exchanges=True)


def exchange_record_to_row(
    record: Record, base: TrainConfig
) -> tuple[str, int, int, float, int, float | None, float, int]:
    """Return a record's row of `EXCHANGE_TRIAL_COLUMNS`; its momentum is None where it is that of the sweep."""
    name, config = name_exchange(record.config), record.config
    global_batch, lr, seed, examples, reached = record_to_row(record)
    momentum = None if config.momentum == base.momentum else config.momentum
    workers = config.workers if name else ANY_WORKERS
    return name, workers, global_batch, lr, seed, momentum, examples, reached


@dataclass(kw_only=True)
class ExchangeTrials(SweepTrials):
    """Trials of a sweep with other ways of exchange, and those with exact sums that they are compared with."""

    def build_trial(self, suggestion: Suggestion | ExchangeTrial) -> TrainConfig:
        """Build the options of a trial; one process hosts all workers of a way that depends on their number."""
        if not (name := read_exchange(suggestion)):
            return super().build_trial(Suggestion(suggestion.global_batch, suggestion.lr, suggestion.seed))
        workers = suggestion.workers  # type: ignore[union-attr]  # it names a way of exchange
        trial = replace(
            self.base,
            workers=workers,
            batch_size=suggestion.global_batch // workers,
            lr=suggestion.lr,
            seed=self.base.seed + suggestion.seed,
        )
        if suggestion.momentum is not None:  # type: ignore[union-attr]
            trial = replace(trial, momentum=suggestion.momentum)  # type: ignore[union-attr]
        return replace_exchange(trial, name)

    def record_path(self, suggestion: Suggestion | ExchangeTrial) -> Path:
        """Return the path of the record of a trial."""
        folder = exchange_trials_folder(self.folder) if read_exchange(suggestion) else self.folder
        return folder / f"{trial_file_stem(self.build_trial(suggestion))}.json"


def read_exchange(suggestion: Suggestion | ExchangeTrial) -> str:
    """Return the way of exchange of a trial; empty for exact sums."""
    return suggestion.exchange if isinstance(suggestion, ExchangeTrial) else ""


class ExchangeSearch:
    """Search policy for ways of exchange: what `suggest_exchange_trial` suggests, in the place of `Search`."""

    noise_scale = None

    def __init__(
        self,
        fits: ExactFits,
        costs: ExchangeCosts,
        survivors: Sequence[ExchangeBound],
        batches: Collection[int],
        momentum: float = 0.0,
    ) -> None:
        """Search among survivors at these global batches; exact sums have this momentum, 0 for optimizers without."""
        self.fits, self.costs, self.survivors, self.batches = fits, costs, survivors, batches
        self.momentum = momentum
        self.added_exact: set[ExchangeTrial] = set()  # runs with exact sums that pairs needed

    def suggest(
        self, finished: pd.DataFrame, running: Iterable[ExchangeTrial] = (), lost: Iterable[ExchangeTrial] = ()
    ) -> ExchangeTrial | None:
        """Return the next trial; None once no further one can change the answer, or while a learning rate is open."""
        running, lost = set(running), set(lost)
        own = finished[finished.exchange != ""]
        trial = suggest_exchange_trial(
            self.costs,
            self.survivors,
            finished,
            num_trials=len(own) + len(running | lost | self.added_exact),
            unavailable=running | lost,
            momentum=self.momentum,
        )
        is_open = any(other.exchange and other.seed == 0 for other in running)
        if trial is None or (is_open and trial.seed > 0):
            return None
        if not trial.exchange:
            self.added_exact.add(trial)
        return trial

    def depends_on_running(self, finished: pd.DataFrame, running: Iterable[ExchangeTrial]) -> bool:
        """Return whether a running trial may still change the next suggestion: each one may."""
        return bool(set(running))

    def rank_settings(self, finished: pd.DataFrame) -> list[object]:
        """Return nothing: ways of exchange are ranked by their verdicts."""
        return []

    def max_examples(self, trial: ExchangeTrial) -> float:
        """Return the examples after which a trial can no longer gain; no limit for exact sums."""
        if not trial.exchange:
            return float("inf")
        examples = self.fits.curve.examples_at(trial.global_batch)
        bound = bound_exchange(self.fits, self.costs, trial.exchange)
        return float("inf") if examples is None else limit_trial_examples(bound, float(examples))


class ExchangeSearchAdapter(SearchAdapter):
    """Adapter that gives Ray Tune the trials of an `ExchangeSearch`."""

    search: ExchangeSearch  # type: ignore[assignment]  # with the methods of a `Search` that are used here

    def add_earlier_records(self) -> None:
        """Add the trials of this sweep so far, with exact sums and with others."""
        trials = self.sweep_trials
        self.finished_trials = pd.DataFrame([], columns=EXCHANGE_TRIAL_COLUMNS)
        self.add_records(load_finished_trials(trials.folder, trials.base))
        self.add_records(load_exchange_trials(trials.folder, trials.base))

    def add_records(self, records: Iterable[Record]) -> None:
        """Add trials that ended to the table of both kinds."""
        records = [record for record in records if record.config.global_batch in self.search.batches]
        if not records:
            return
        base = self.sweep_trials.base
        table = [exchange_record_to_row(record, base) for record in records]
        rows = pd.DataFrame(table, columns=EXCHANGE_TRIAL_COLUMNS).astype({"momentum": float})
        rows["seed"] -= base.seed  # the search counts from 0
        known = self.finished_trials
        self.finished_trials = pd.concat([known, rows], ignore_index=True) if len(known) else rows

    def is_hopeless(self, suggestion: ExchangeTrial, examples_seen: float) -> bool:  # type: ignore[override]
        """Return whether a trial has already needed more examples than could gain, by a safe factor."""
        return examples_seen > self.search.max_examples(suggestion)


class ExchangeStatus:
    """Status of the trials with other ways of exchange: a line for each that ends."""

    num_shown = 0

    def show(self, finished_trials: pd.DataFrame, running_count: int, setting_results: object) -> None:
        """Print the trials that ended since the last call."""
        for name, _, *row in finished_trials.iloc[self.num_shown :].itertuples(index=False, name=None):
            print(format_exchange_trial(name, *row), flush=True)
        self.num_shown = len(finished_trials)


def format_exchange_trial(
    exchange: str, global_batch: int, lr: float, seed: int, momentum: float, examples: float, reached: int
) -> str:
    """Format a finished trial as a line; its momentum is NaN where it is that of the sweep."""
    rate = f"lr {lr:.3g}" if np.isnan(momentum) else f"lr {lr:.3g} and momentum {momentum:g}"
    end = "reached the target after" if reached else "did not reach the target within"
    return (
        f"{exchange or EXACT_TEXT}, global batch {global_batch} at {rate}, seed {seed}: {end}"
        f" {format_number(examples)} examples"
    )
