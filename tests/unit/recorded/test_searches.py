"""A search policy suggests the same trials in every version, so that an interrupted sweep goes on where it was."""

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.search import GridSearch, Search
from tests.support.recorded import assert_as_recorded
from tests.unit.planning.test_search import BATCHES, COLUMNS, NO_TRIALS, simulate_examples, step_seconds

SEARCHES = {
    "usual": {},
    "noisy": {"noise": 0.4},
    "hard": {"max_examples": 9000.0},
    "small-batches": {"critical_batch": 40.0},
    "large-batches": {"critical_batch": 5000.0},
    "low-start": {"base_lr": 0.0008},
    "high-start": {"base_lr": 0.9},
}


def run_search(base_lr=0.02, noise=0.1, critical_batch=300.0, max_examples=100_000.0):
    """Return the trials of a search in their order, each cut off at `max_examples`."""
    search, rows = Search(BATCHES, base_lr, step_seconds), []
    while suggestion := search.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        examples = simulate_examples(suggestion, noise, critical_batch)
        rows.append((*suggestion, min(examples, max_examples), int(examples <= max_examples)))
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize("name", SEARCHES)
def test_trials_are_as_recorded(name):
    trials = run_search(**SEARCHES[name])
    results = Search(BATCHES, 0.02, step_seconds).rank_settings(trials)
    values = {
        "count": len(trials),
        "batches": trials.global_batch,
        "learning rates": trials.lr,
        "seeds": trials.seed,
        "seconds of settings": np.array([result.seconds for result in results[:20]]),
        "errors of settings": np.array([result.log_error for result in results[:20]]),
    }
    assert_as_recorded(f"search-{name}", values)


def test_trials_of_a_grid_and_those_beside_running_ones_are_as_recorded():
    grid = GridSearch(BATCHES[::3], 0.05, step_seconds, num_seeds=1).rank_suggestions(NO_TRIALS)
    search, running = Search(BATCHES, 0.02, step_seconds), []
    finished = run_search().iloc[:9]
    while len(running) < 20 and (suggestion := search.suggest(finished, running)):
        running.append(suggestion)
    assert_as_recorded("search-grid", {"grid": np.array(grid), "beside running ones": np.array(running)})
