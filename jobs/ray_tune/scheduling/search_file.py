"""The file search.json, which a sweep writes beside its trials for whoever watches it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pandas as pd

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.search import Search, SettingResult, Suggestion
from equipoise.planning.search_status.search_progress import SEARCH_FILE, describe_search
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import RemotePath

PLAIN_TRIALS_FOLDER = "trials"  # of the trials whose settings the plan is about


class TrialFolder(Protocol):
    """Where the trials of a search are, and the options that they share."""

    base: TrainConfig
    folder: Path


class SearchState(Protocol):
    """State of a search that Ray Tune runs."""

    search: Search
    finished_trials: pd.DataFrame
    setting_results: list[SettingResult]

    @property
    def sweep_trials(self) -> TrialFolder:
        """Trials that the search suggests."""

    def running_suggestions(self) -> Sequence[Suggestion]:
        """Return the suggestions whose trials are running."""


def write_search_progress(state: SearchState) -> None:
    """Write what a search tries and why; not for a bucket, where each trial would wait for it.

    Whoever reads the file sees less without it, so that a full disk ends no sweep here.
    """
    trials, search = state.sweep_trials, state.search
    is_plain = trials.folder.name == PLAIN_TRIALS_FOLDER and isinstance(search, Search)
    if isinstance(trials.folder, RemotePath) or not is_plain:
        return
    results, finished = state.setting_results, state.finished_trials
    progress = describe_search(search, finished, results, state.running_suggestions(), trials.base.seed)
    with suppress(OSError, EquipoiseError):
        write_json(trials.folder.parent / SEARCH_FILE, progress.to_json())
