"""What search.json says of a search: what is tried and why, and how sure the best setting is."""

import pandas as pd

from equipoise.planning.search import GridSearch, Search, Suggestion
from equipoise.planning.search_status.search_progress import SearchProgress, describe_search
from equipoise.storage.atomic import write_json
from tests.unit.planning.test_search import BATCHES, COLUMNS, NO_TRIALS, run_search, step_seconds


def test_the_first_trials_are_those_of_the_ladder():
    search = Search(BATCHES, 0.02, step_seconds)
    first = search.suggest(NO_TRIALS)
    progress = describe_search(search, NO_TRIALS, [], [first], base_seed=7)
    (running,) = progress.running
    assert (running.global_batch, running.stage, running.seed) == (first.global_batch, "ladder", 7)
    assert {trial.stage for trial in progress.next_trials} == {"ladder"}
    assert first.global_batch not in {trial.global_batch for trial in progress.next_trials}


def test_each_suggestion_of_a_search_has_a_reason(tmp_path):
    search, trials, stages = Search(BATCHES, 0.02, step_seconds), run_search(), []
    for count in range(len(trials)):
        finished = trials.head(count)
        suggestion = search.suggest(finished)
        results = search.rank_settings(finished) if count else []
        progress = describe_search(search, finished, results, [suggestion])
        assert progress.running[0].global_batch == suggestion.global_batch
        stages.append(progress.running[0].stage)
    assert {"ladder", "learning rate", "seed"} <= {*stages} and "spare slot" not in stages
    assert stages[0] == "ladder" and stages[-1] == "seed"
    write_json(tmp_path / "search.json", progress.to_json())
    assert SearchProgress.read(tmp_path / "search.json") == progress


def test_rivals_are_the_settings_that_are_not_clearly_slower():
    rows = [(64, 0.1, seed, 10_000 + 100 * seed, 1) for seed in range(5)]
    rows += [(128, 0.1, 0, 20_000, 1), (256, 0.1, 0, 100_000, 0)]  # 128: as fast from one run; 256 reached nothing
    finished = pd.DataFrame(rows, columns=COLUMNS)
    search = Search(BATCHES, 0.02, lambda batch: batch / 1000)
    progress = describe_search(search, finished, search.rank_settings(finished), [])
    best = progress.standings[0]
    assert (best.global_batch, best.seeds) == (64, 5) and not best.is_rival
    by_batch = {standing.global_batch: standing for standing in progress.standings}
    assert by_batch[256].seconds is None and not by_batch[256].is_rival
    assert progress.rivals == tuple(standing for standing in progress.standings[1:] if standing.is_rival)


def test_trials_beyond_what_the_search_needs_keep_slots_busy():
    grid = GridSearch(BATCHES, 0.02, step_seconds, num_seeds=1)
    progress = describe_search(grid, NO_TRIALS, [], [grid.all_suggestions[0], Suggestion(8, 0.5, 9)])
    assert [trial.stage for trial in progress.running] == ["grid", "spare slot"]
