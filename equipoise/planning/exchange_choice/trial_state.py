"""What is known of ways of exchange when the next trial is chosen: runs so far, their ratios, the best settings."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import pandas as pd

from equipoise.planning.exchange_choice.examples_ratio import (
    ExamplesRatio,
    RatioKey,
    fit_examples_ratio,
    pool_noise_by_exchange,
    select_best_momentum,
)
from equipoise.planning.exchange_choice.exchange_bounds import ExchangeBound
from equipoise.planning.exchange_choice.exchange_costs import ExchangeCosts
from equipoise.planning.exchanges.exact_rows import read_momentum
from equipoise.planning.exchanges.exchange_name import parse_exchange


class ExchangeTrial(NamedTuple):
    """Trial to run: with virtual workers in one process, or, if `exchange` is empty, with exact sums."""

    exchange: str
    workers: int
    global_batch: int
    lr: float
    seed: int
    momentum: float | None = None
    """momentum of SGD; None for that of exact sums"""


class StepRate(NamedTuple):
    """Learning rate and momentum of runs; None for the momentum of exact sums."""

    lr: float
    momentum: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class TrialState:
    """What is known when the next trial is chosen."""

    costs: ExchangeCosts
    """closed forms of the step times"""
    runs: pd.DataFrame = field(repr=False)
    """rows of exchange, workers, global_batch, lr, seed, examples and reached; and of momentum, if there are several"""
    momentum: float = 0.0
    """momentum of exact sums; 0 for optimizers without"""
    _ratios: dict[RatioKey, ExamplesRatio | None] = field(default_factory=dict, repr=False)

    @cached_property
    def seed_noise(self) -> tuple[float, int]:
        """Standard deviation between seeds, in log examples, and its degrees of freedom."""
        return pool_noise_by_exchange(self.runs)

    def find_ratio(self, bound: ExchangeBound, name: str | None = None) -> ExamplesRatio | None:
        """Return the examples ratio at the setting of a survivor, of it or of another way of exchange."""
        key = RatioKey(name or bound.exchange, bound.workers, bound.global_batch)
        if key not in self._ratios:
            self._ratios[key] = fit_examples_ratio(self.runs, key, self.seed_noise)
        return self._ratios[key]

    def find_best_rate(self, bound: ExchangeBound, name: str) -> StepRate | None:
        """Return the best learning rate of a way of exchange at the setting of a survivor; None without runs."""
        own = select_own_runs(self.runs, name, bound)
        if own.empty:
            return None
        best = select_best_momentum(own, self.seed_noise[0])
        return StepRate(float(best.lr.iloc[0]), read_momentum(best))

    def find_best_lr(self, bound: ExchangeBound, name: str) -> float | None:
        """Return the best learning rate without its momentum; None without runs."""
        best = self.find_best_rate(bound, name)
        return None if best is None else best.lr


def select_own_runs(runs: pd.DataFrame, name: str, bound: ExchangeBound) -> pd.DataFrame:
    """Return the runs of a way of exchange at the setting of a survivor; exact sums have any number of workers."""
    here = runs[runs.global_batch == bound.global_batch]
    if not name:
        return here[[parse_exchange(other).learns_exactly for other in here.exchange]]
    return here[(here.exchange == name) & (here.workers == bound.workers)]


def list_step_rates(runs: pd.DataFrame) -> set[StepRate]:
    """Return the learning rates of runs, each with its momentum."""
    momenta = list_momenta(runs)
    return {StepRate(float(lr), momentum) for lr, momentum in zip(runs.lr, momenta, strict=True)}


def list_momenta(runs: pd.DataFrame) -> list[float | None]:
    """Return the momentum of each run; None where it is that of exact sums."""
    if "momentum" not in runs:
        return [None] * len(runs)
    return [None if pd.isna(momentum) else float(momentum) for momentum in runs.momentum]


def list_known_trials(runs: pd.DataFrame, unavailable: Iterable[ExchangeTrial]) -> set[ExchangeTrial]:
    """Return the trials that need not be suggested again: those with runs, and those that run or were lost."""
    columns = (runs[name].tolist() for name in ("exchange", "workers", "global_batch", "lr", "seed"))
    rows = zip(*columns, list_momenta(runs), strict=True)
    known = [
        ExchangeTrial(name, int(workers), int(batch), float(lr), int(seed), momentum)
        for name, workers, batch, lr, seed, momentum in rows
    ]
    return {forget_workers(trial) for trial in (*known, *unavailable)}


def forget_workers(trial: ExchangeTrial) -> ExchangeTrial:
    """Return a trial without its workers if it has exact sums, which any number of workers take alike."""
    return trial._replace(workers=0) if parse_exchange(trial.exchange).learns_exactly else trial
