"""Progress of the search of a sweep, as the file search.json beside its trials: what is tried and why.

The sweep writes it whenever a trial begins or ends; its page reads it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pandas as pd

from equipoise.number_bounds import Count, LearningRate, NonNegativeCount, NonNegativeNumber
from equipoise.planning.search import Search, SearchStage, SettingResult, Suggestion, is_significantly_slower
from equipoise.storage.atomic import read_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

SEARCH_FILE = "search.json"
MAX_NEXT_TRIALS, MAX_STANDINGS = 5, 6


@dataclass(frozen=True, kw_only=True)
class SearchedTrial:
    """Trial that runs or may come next, with the reason for it."""

    global_batch: Count
    """examples per step"""
    lr: LearningRate
    """learning rate"""
    seed: NonNegativeCount
    """seed of the run"""
    stage: SearchStage
    """part of the search that suggests it"""


@dataclass(frozen=True, kw_only=True)
class SettingStanding:
    """Setting that was tried, with its expected time to the target."""

    global_batch: Count
    """examples per step"""
    lr: LearningRate
    """learning rate"""
    seeds: NonNegativeCount
    """runs with it"""
    seconds: NonNegativeNumber | None
    """expected seconds to the target; None if no run reached it"""
    log_error: NonNegativeNumber | None
    """standard error of the log of these seconds"""
    is_rival: bool
    """whether the best setting is not clearly faster"""


@dataclass(frozen=True, kw_only=True)
class SearchProgress:
    """Progress of the search of a sweep."""

    finished: NonNegativeCount
    """trials that ended"""
    running: tuple[SearchedTrial, ...]
    """trials in progress"""
    next_trials: tuple[SearchedTrial, ...]
    """trials that come next, unless a running one changes that"""
    standings: tuple[SettingStanding, ...]
    """best settings so far, the fastest first"""
    schema: Literal[1] = 1
    """version of the format"""

    @property
    def rivals(self) -> tuple[SettingStanding, ...]:
        """Settings that may still turn out faster than the best one."""
        return tuple(standing for standing in self.standings[1:] if standing.is_rival)

    def to_json(self) -> JsonObject:
        """Return the contents of search.json."""
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the search.json at a path."""
        return decode_json_value(
            read_json(path),
            cls,
            code="file-damaged",
            problem=f"cannot read {path}",
            remedy="remove it: the sweep writes it anew",
        )


def describe_search(
    search: Search,
    finished: pd.DataFrame,
    results: Sequence[SettingResult],
    running: Iterable[Suggestion],
    base_seed: int = 0,
) -> SearchProgress:
    """Describe what a search tries now and next, and how its settings stand; seeds count from `base_seed`."""
    stages = {trial: stage for stage, trials in reversed(search.list_stages(finished).items()) for trial in trials}
    known = zip(*(finished[name].tolist() for name in ("global_batch", "lr", "seed")), strict=True)
    running = [*running]
    done: set[tuple[float, ...]] = {*known, *running}
    following = [trial for trials in search.list_stages(finished).values() for trial in trials if trial not in done]

    def explain(trial: Suggestion) -> SearchedTrial:
        stage = stages.get(trial, "spare slot")
        return SearchedTrial(global_batch=trial.global_batch, lr=trial.lr, seed=base_seed + trial.seed, stage=stage)

    return SearchProgress(
        finished=len(finished),
        running=tuple(map(explain, running)),
        next_trials=tuple(map(explain, [*dict.fromkeys(following)][:MAX_NEXT_TRIALS])),
        standings=tuple(build_standing(result, results[0]) for result in results[:MAX_STANDINGS]),
    )


def build_standing(result: SettingResult, best: SettingResult) -> SettingStanding:
    """Build the standing of a setting beside the best one."""
    is_known = bool(np.isfinite(result.seconds) and np.isfinite(result.log_error))
    return SettingStanding(
        global_batch=result.global_batch,
        lr=result.lr,
        seeds=result.num_seeds,
        seconds=result.seconds if is_known else None,
        log_error=result.log_error if is_known else None,
        is_rival=result is not best and not is_significantly_slower(best, result),
    )
