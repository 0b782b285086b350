import numpy as np
import pandas as pd
import pytest

from equipoise.planning.search import (
    GridSearch,
    Search,
    Suggestion,
    find_nearest_batch,
    is_significantly_slower,
    log_standard_error,
    round_to_half_octave,
    should_prune,
)
from equipoise.planning.setting_runs import SettingRuns

BATCHES = [8, 16, 32, 64, 128, 256, 512, 1024]
COLUMNS = ["global_batch", "lr", "seed", "examples", "reached"]
NO_TRIALS = pd.DataFrame([], columns=COLUMNS)
MAX_EXAMPLES = 100_000.0


def step_seconds(batch):
    """Return the seconds per step: 20 ms, and 0.1 ms per example."""
    return 0.02 + 1e-4 * batch


def simulate_examples(suggestion, noise=0.1, critical_batch=300.0):
    """Return the examples to target of a simulated trial.

    They follow a hyperbola over the batch, times a penalty for a learning rate away from the best one, which grows
    with the square root of the batch, times noise drawn by the seed.
    """
    best_lr = 0.1 * np.sqrt(suggestion.global_batch / 32)
    rng = np.random.default_rng([suggestion.global_batch, round(suggestion.lr * 1e6), suggestion.seed])
    slowdown = 1 + 0.5 * np.log2(suggestion.lr / best_lr) ** 2
    return 5000 * (1 + suggestion.global_batch / critical_batch) * slowdown * np.exp(noise * rng.standard_normal())


def run_search(noise=0.1, max_trials=80):
    """Run every trial that a search suggests, one after another, and return their table."""
    search, rows = Search(BATCHES, 0.02, step_seconds), []
    while suggestion := search.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        examples = simulate_examples(suggestion, noise)
        rows.append((*suggestion, min(examples, MAX_EXAMPLES), int(examples <= MAX_EXAMPLES)))
        assert len(rows) < max_trials
    return pd.DataFrame(rows, columns=COLUMNS)


def true_seconds(batch, lr):
    """Return the seconds to target of a setting: the geometric mean over 40 seeds that no search has seen."""
    log_examples = [np.log(simulate_examples(Suggestion(batch, lr, seed))) for seed in range(50, 90)]
    return np.exp(np.mean(log_examples)) / batch * step_seconds(batch)


def test_first_trials_are_a_coarse_ladder_with_sqrt_scaled_learning_rates():
    search = Search(BATCHES, 0.02, step_seconds)
    suggestions = []
    for _ in search.initial_batches():
        suggestions.append(search.suggest(NO_TRIALS, suggestions))
    assert [suggestion.global_batch for suggestion in suggestions] == search.initial_batches()
    assert {suggestion.seed for suggestion in suggestions} == {0}
    assert [search.initial_batches()[0], search.initial_batches()[-1]] == [8, 1024]
    assert suggestions[-1].lr / suggestions[0].lr == pytest.approx(np.sqrt(1024 / 8), rel=0.3)


def test_both_neighbours_of_the_best_batch_are_suggested_after_its_learning_rates():
    search = Search(BATCHES, 0.02, step_seconds)
    ladder = search.initial_batches()
    best = ladder[1]
    rows = [
        (batch, lr, 0, (1 if batch == best else 30) * batch / step_seconds(batch), 1)
        for batch in ladder
        for lr in search.candidate_lrs(batch)
    ]
    finished, running = pd.DataFrame(rows, columns=COLUMNS), []
    for _ in range(4):
        running.append(search.suggest(finished, running))
    index = BATCHES.index(best)
    assert {BATCHES[index - 1], BATCHES[index + 1]} <= {suggestion.global_batch for suggestion in running}


def test_learning_rates_are_tried_at_fast_batches_and_at_slow_neighbours_of_the_best():
    search, best = Search(BATCHES, 0.02, step_seconds), 64
    seconds = {8: 10.0, 64: 1.0, 128: 10.0, 1024: 2.0}  # 8 is slow and far, 128 slow and a neighbour, 1024 fast and far
    rows = [(b, search.sqrt_scaled_lr(b), 0, s * b / step_seconds(b), 1) for b, s in seconds.items()]
    finished, running = pd.DataFrame(rows, columns=COLUMNS), []
    for _ in range(8):
        running.append(search.suggest(finished, running))
    tried = {suggestion.global_batch for suggestion in running if suggestion.seed == 0}
    assert {best, 128, 1024} <= tried and 8 not in tried


def suggest_after(examples_by_batch, batches=BATCHES):
    """Return the batches of what is suggested after one trial at some batches, in their order, each once."""
    search = Search(batches, 0.02, step_seconds)
    rows = [(b, search.sqrt_scaled_lr(b), 0, examples, 1) for b, examples in examples_by_batch.items()]
    suggestions = search.rank_suggestions(pd.DataFrame(rows, columns=COLUMNS))
    return list(dict.fromkeys(trial.global_batch for trial in suggestions))


def test_batches_that_the_smaller_ones_let_expect_to_be_pruned_follow_all_others():
    last = suggest_after({8: 4500.0, 32: 5000.0, 128: 30_000.0})[-2:]
    assert last == [256, 1024]  # at least 57,000 and 220,000 examples: 10 and 26 s, where the best takes 3.6 s


def test_large_batches_follow_the_smaller_ones_at_once_where_they_may_win():
    assert suggest_after({8: 5000.0, 32: 5100.0})[:5] == [8, 32, 128, 256, 1024]
    assert suggest_after({8: 9000.0, 32: 5000.0})[:5] == [8, 32, 128, 256, 1024]  # the smallest batch turned up


def test_search_tries_the_hopeless_batches_of_the_ladder_before_it_ends():
    table = run_search()
    assert set(Search(BATCHES, 0.02, step_seconds).initial_batches()) <= set(table.global_batch)


def test_batch_nearest_the_noise_scale_joins_the_first_ladder():
    search = Search(BATCHES, 0.02, step_seconds)
    search.noise_scale = 70.0
    assert 64 in search.initial_batches()


def test_suggestion_depends_only_on_the_set_of_finished_trials():
    table = run_search()
    for count in (3, 8, 15):
        finished = table.iloc[:count]
        assert Search(BATCHES, 0.02, step_seconds).suggest(finished) == Search(BATCHES, 0.02, step_seconds).suggest(
            finished.sample(frac=1, random_state=1)
        )


def test_no_finished_or_running_trial_is_suggested_again():
    table = run_search()
    assert not table.duplicated(["global_batch", "lr", "seed"]).any()
    search = Search(BATCHES, 0.02, step_seconds)
    first = search.suggest(table.iloc[:6])
    assert search.suggest(table.iloc[:6], [first]) != first


def test_free_slot_gets_an_extra_seed_while_a_deciding_trial_runs():
    search, table = Search(BATCHES, 0.02, step_seconds), run_search()
    *earlier, last = table[COLUMNS[:3]].itertuples(index=False)
    deciding, finished = Suggestion(int(last.global_batch), last.lr, int(last.seed)), table.iloc[:-1]
    assert search.suggest(finished) == deciding
    assert search.suggest(table) is None
    extra = search.suggest(finished, [deciding])
    assert extra is not None
    assert (extra.global_batch, extra.lr) in {(trial.global_batch, trial.lr) for trial in earlier}
    assert search.depends_on_running(finished, [deciding, extra])
    assert search.suggest(table, [extra]) is None  # an extra seed decides nothing, so no further one starts beside it
    assert not search.depends_on_running(table, [extra])
    assert search.suggest(finished, [], [deciding]) is None


def test_grid_search_suggests_no_extra_seeds():
    grid = GridSearch(BATCHES[:1], 0.02, step_seconds, num_seeds=1)
    suggestions = [grid.suggest(NO_TRIALS, grid.rank_suggestions(NO_TRIALS)[:count]) for count in range(6)]
    assert suggestions == [*grid.rank_suggestions(NO_TRIALS), None]


def test_best_setting_is_within_5_percent_of_the_true_best():
    table = run_search()
    best = Search(BATCHES, 0.02, step_seconds).rank_settings(table)[0]
    seconds_by_setting = {(b, lr): true_seconds(b, lr) for b in BATCHES for lr in np.unique(table.lr)}
    assert seconds_by_setting[best.global_batch, best.lr] / min(seconds_by_setting.values()) - 1 <= 0.05
    assert best.num_seeds >= 3


def test_best_learning_rate_is_interior_at_the_best_batch():
    table = run_search()
    best = Search(BATCHES, 0.02, step_seconds).rank_settings(table)[0]
    lrs = table.lr[table.global_batch == best.global_batch]
    assert lrs.min() < best.lr < lrs.max()


def test_noisier_trials_make_the_search_longer():
    noisy_count, quiet_count = len(run_search(noise=0.3, max_trials=200)), len(run_search(noise=0.01))
    assert quiet_count < noisy_count


def test_search_ends_if_no_trial_reaches_the_target():
    search, rows = Search(BATCHES, 0.02, step_seconds), []
    while suggestion := search.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        rows.append((*suggestion, MAX_EXAMPLES, 0))
        assert len(rows) < 80
    assert rows


def test_trial_beyond_2_5_times_the_best_is_pruned():
    assert not should_prune(2.4, 1.0) and not should_prune(2.5, 1.0)
    assert should_prune(2.6, 1.0)
    assert not should_prune(1e9, np.inf)


def test_failed_runs_count_toward_the_seconds_of_a_setting():
    table = pd.DataFrame([(64, 0.1, 0, 5000, 1), (64, 0.1, 1, 7000, 1), (64, 0.1, 2, 12000, 0)], columns=COLUMNS)
    [result] = Search(BATCHES, 0.02, step_seconds).rank_settings(table)
    assert result.seconds == pytest.approx((5000 + 7000 + 12000) / 2 / 64 * step_seconds(64))


def test_noisy_or_failing_setting_has_a_larger_standard_error():
    steady = SettingRuns(5000.0 + np.arange(4), np.ones(4, bool))
    noisy = steady._replace(examples=np.array([2000.0, 4000, 8000, 16000]))
    failing = steady._replace(reached=np.array([True, True, True, False]))
    assert log_standard_error(steady, 0.1) < log_standard_error(noisy, 0.1)
    assert log_standard_error(steady, 0.1) < log_standard_error(failing, 0.1)
    assert log_standard_error(steady, 0.1) < 0.1 / np.sqrt(4)
    assert log_standard_error(SettingRuns(*(values[:1] for values in steady)), 0.1) == pytest.approx(0.1)


def test_learning_rates_round_to_half_octaves_and_nearest_batch_is_by_ratio():
    assert round_to_half_octave(0.1) == round_to_half_octave(0.1001)
    assert round_to_half_octave(round_to_half_octave(0.1) * 2) == pytest.approx(2 * round_to_half_octave(0.1), rel=1e-5)
    assert find_nearest_batch([10, 100], 40) == 100
    assert find_nearest_batch([10, 100], 30) == 10


def test_setting_that_never_reaches_the_target_is_significantly_slower():
    search = Search(BATCHES, 0.02, step_seconds)
    table = pd.DataFrame([(64, 0.1, 0, 6400, 1), (128, 0.1, 0, 9999, 0)], columns=COLUMNS)
    first, second = search.rank_settings(table)
    assert is_significantly_slower(first, second)


def test_grid_search_suggests_each_setting_once_per_seed():
    grid, rows = GridSearch([8, 16], 0.02, step_seconds, num_seeds=2), []
    while suggestion := grid.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        rows.append((*suggestion, 1000.0, 1))
    assert len(rows) == len(set(rows)) == 2 * 5 * 2
    assert [row[2] for row in rows] == [0] * 10 + [1] * 10
    lrs = sorted({row[1] for row in rows if row[0] == 8})
    assert np.allclose(np.diff(np.log2(lrs)), 1)


class CountingGridSearch(GridSearch):
    """Grid search that counts its calls of `candidate_lrs`."""

    candidate_lrs_calls = 0

    def candidate_lrs(self, batch):
        self.candidate_lrs_calls += 1
        return super().candidate_lrs(batch)


class CountingSuggestion(Suggestion):
    """Suggestion that counts how often any of its instances is hashed."""

    hash_count = 0

    def __hash__(self):
        CountingSuggestion.hash_count += 1
        return super().__hash__()


def test_grid_search_builds_its_learning_rates_once_per_batch():
    for seeds in (2, 20):
        grid = CountingGridSearch([8, 16], 0.02, step_seconds, num_seeds=seeds)
        rows = [(*suggestion, 1000.0, 1) for suggestion in grid.all_suggestions]
        for count in range(len(rows)):
            assert grid.suggest(pd.DataFrame(rows[:count], columns=COLUMNS)) == grid.all_suggestions[count]
        assert grid.candidate_lrs_calls == 2


def test_lost_trials_are_hashed_once_per_suggest_call():
    grid = GridSearch([8, 16], 0.02, step_seconds, num_seeds=20)
    finished = pd.DataFrame([(*suggestion, 1000.0, 1) for suggestion in grid.all_suggestions[:100]], columns=COLUMNS)
    lost = [CountingSuggestion(*suggestion) for suggestion in grid.all_suggestions[100:150]]
    CountingSuggestion.hash_count = 0
    assert grid.suggest(finished, lost=lost) == grid.all_suggestions[150]
    assert CountingSuggestion.hash_count == 50


def test_learning_rates_stay_within_their_bounds():
    search, rows = Search(BATCHES, 0.02, step_seconds, lr_bounds=(0.01, 0.1)), []
    while suggestion := search.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        rows.append((*suggestion, simulate_examples(suggestion), 1))
    lrs = [row[1] for row in rows]
    assert min(lrs) >= 0.01 and max(lrs) <= 0.1


def test_equal_bounds_leave_one_learning_rate():
    grid = GridSearch([8, 16], 0.05, step_seconds, num_seeds=1, lr_bounds=(0.05, 0.05))
    assert [grid.candidate_lrs(batch) for batch in (8, 16)] == [[0.05], [0.05]]


def test_rival_of_the_best_setting_gets_as_many_seeds():
    search = Search([8, 16], 0.02, step_seconds)
    best = [(8, 0.02, seed, 5000.0 + 100 * seed, 1) for seed in range(6)]
    rival = [(16, 0.028, seed, 9000.0 + 6000 * seed, 1) for seed in range(2)]
    results = search.rank_settings(pd.DataFrame([*best, *rival], columns=COLUMNS))
    assert [result.global_batch for result in results] == [8, 16]
    suggested = {(trial.global_batch, trial.seed) for trial in search._suggest_seeds(results)}
    assert {(16, 2), (16, 3), (16, 4)} <= suggested
