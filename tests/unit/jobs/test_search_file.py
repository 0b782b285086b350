"""The file search.json of a sweep: written beside plain trials on this machine, and nowhere else."""

from types import SimpleNamespace

import pandas as pd

from equipoise.config import TrainConfig
from equipoise.planning.search import Search
from equipoise.planning.search_status.search_progress import SearchProgress
from equipoise.storage.object_store import parse_location
from jobs.ray_tune.scheduling.search_file import write_search_progress
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS


def build_state(folder):
    """Build the state of a search whose first trial runs."""
    search = Search([8, 16, 32], 0.05, lambda batch: batch / 1000)
    finished = pd.DataFrame([], columns=FINISHED_TRIAL_COLUMNS)
    return SimpleNamespace(
        search=search,
        finished_trials=finished,
        setting_results=[],
        sweep_trials=SimpleNamespace(base=TrainConfig(workload="digits", seed=5), folder=folder),
        running_suggestions=lambda: [search.suggest(finished)],
    )


def test_a_sweep_writes_what_it_tries(tmp_path):
    write_search_progress(build_state(tmp_path / "trials"))
    progress = SearchProgress.read(tmp_path / "search.json")
    assert [(trial.stage, trial.seed) for trial in progress.running] == [("ladder", 5)] and progress.next_trials


def test_other_trials_and_buckets_have_no_such_file(tmp_path):
    write_search_progress(build_state(tmp_path / "trials" / "recipes" / "plain"))
    write_search_progress(build_state(parse_location("s3://bucket/sweep/trials")))  # there is no such bucket
    assert not [*tmp_path.rglob("search.json")]


def test_a_sweep_goes_on_where_the_file_cannot_be_written(tmp_path):
    (tmp_path / "search.json").mkdir()
    write_search_progress(build_state(tmp_path / "trials"))
