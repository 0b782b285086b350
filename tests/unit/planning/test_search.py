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
NOTHING = pd.DataFrame([], columns=COLUMNS)
CAP = 100_000.0


def step(batch):
    """20 ms and 0.1 ms an example."""
    return 0.02 + 1e-4 * batch


def examples(asked, noise=0.1, critical=300.0):
    """A made-up workload: a hyperbola, a best rate that grows with the root of the batch, and seeds."""
    best = 0.1 * np.sqrt(asked.global_batch / 32)
    rng = np.random.default_rng([asked.global_batch, round(asked.lr * 1e6), asked.seed])
    worse = 1 + 0.5 * np.log2(asked.lr / best) ** 2
    return 5000 * (1 + asked.global_batch / critical) * worse * np.exp(noise * rng.standard_normal())


def searched(noise=0.1, most=80):
    """All trials that a search asks for, one after another."""
    search, rows = Search(BATCHES, 0.02, step), []
    while asked := search.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        seen = examples(asked, noise)
        rows.append((*asked, min(seen, CAP), int(seen <= CAP)))
        assert len(rows) < most
    return pd.DataFrame(rows, columns=COLUMNS)


def seconds(batch, lr):
    """The true time to the target."""
    return np.exp(np.mean([np.log(examples(Suggestion(batch, lr, s))) for s in range(50, 90)])) / batch * step(batch)


def test_the_first_trials_are_a_coarse_ladder_at_the_rule_of_the_root():
    search = Search(BATCHES, 0.02, step)
    asked = []
    for _ in search.initial_batches():
        asked.append(search.suggest(NOTHING, asked))
    assert [one.global_batch for one in asked] == search.initial_batches()
    assert [search.initial_batches()[0], search.initial_batches()[-1]] == [8, 1024]
    assert asked[-1].lr / asked[0].lr == pytest.approx(np.sqrt(1024 / 8), rel=0.3)


def test_the_noise_scale_adds_its_batch():
    search = Search(BATCHES, 0.02, step)
    search.noise_scale = 70.0
    assert 64 in search.initial_batches()


def test_the_same_trials_ask_for_the_same_next_one():
    table = searched()
    for count in (3, 8, 15):
        known = table.iloc[:count]
        assert Search(BATCHES, 0.02, step).suggest(known) == Search(BATCHES, 0.02, step).suggest(
            known.sample(frac=1, random_state=1)
        )


def test_no_trial_is_asked_for_twice_nor_while_it_runs():
    table = searched()
    assert not table.duplicated(["global_batch", "lr", "seed"]).any()
    search = Search(BATCHES, 0.02, step)
    first = search.suggest(table.iloc[:6])
    assert search.suggest(table.iloc[:6], [first]) != first


def test_a_slot_gets_a_spare_trial_while_one_runs_that_decides_what_comes_next():
    search, table = Search(BATCHES, 0.02, step), searched()
    *before, last = table[COLUMNS[:3]].itertuples(index=False)
    wanted, known = Suggestion(int(last.global_batch), last.lr, int(last.seed)), table.iloc[:-1]
    assert search.suggest(known) == wanted
    assert search.suggest(table) is None
    spare = search.suggest(known, [wanted])
    assert spare is not None
    assert (spare.global_batch, spare.lr) in {(one.global_batch, one.lr) for one in before}
    assert search.depends_on_running(known, [wanted, spare])
    assert search.suggest(table, [spare]) is None  # it decides nothing: no other is started beside it
    assert not search.depends_on_running(table, [spare])
    assert search.suggest(known, [], [wanted]) is None


def test_a_grid_has_no_spare_trials():
    grid = GridSearch(BATCHES[:1], 0.02, step, num_seeds=1)
    asked = [grid.suggest(NOTHING, grid._ranked_suggestions(NOTHING)[:count]) for count in range(6)]
    assert asked == [*grid._ranked_suggestions(NOTHING), None]


def test_what_is_found_is_nearly_the_best_there_is():
    table = searched()
    found = Search(BATCHES, 0.02, step).rank_settings(table)[0]
    truth = {(b, lr): seconds(b, lr) for b in BATCHES for lr in np.unique(table.lr)}
    assert truth[found.global_batch, found.lr] / min(truth.values()) - 1 <= 0.05
    assert found.num_seeds >= 3


def test_the_best_rate_is_interior_at_the_best_batch():
    table = searched()
    best = Search(BATCHES, 0.02, step).rank_settings(table)[0]
    rates = table.lr[table.global_batch == best.global_batch]
    assert rates.min() < best.lr < rates.max()


def test_a_search_ends_when_the_two_best_are_apart():
    noisy, quiet = len(searched(noise=0.3, most=200)), len(searched(noise=0.01))
    assert quiet < noisy


def test_a_workload_that_never_reaches_its_target_ends_too():
    search, rows = Search(BATCHES, 0.02, step), []
    while asked := search.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        rows.append((*asked, CAP, 0))
        assert len(rows) < 80
    assert rows


def test_a_running_trial_that_is_much_slower_than_the_best_is_hopeless():
    assert not should_prune(2.4, 1.0)
    assert should_prune(2.6, 1.0)
    assert not should_prune(1e9, np.inf)


def test_a_setting_that_fails_now_and_then_counts_the_runs_that_it_takes():
    table = pd.DataFrame([(64, 0.1, 0, 5000, 1), (64, 0.1, 1, 7000, 1), (64, 0.1, 2, 12000, 0)], columns=COLUMNS)
    [one] = Search(BATCHES, 0.02, step).rank_settings(table)
    assert one.seconds == pytest.approx((5000 + 7000 + 12000) / 2 / 64 * step(64))


def test_a_setting_with_a_scatter_of_its_own_is_known_less_well():
    steady = SettingRuns(5000.0 + np.arange(4), np.ones(4, bool))
    wild = steady._replace(examples=np.array([2000.0, 4000, 8000, 16000]))
    failing = steady._replace(reached=np.array([True, True, True, False]))
    assert log_standard_error(steady, 0.1) < log_standard_error(wild, 0.1)
    assert log_standard_error(steady, 0.1) < log_standard_error(failing, 0.1)
    assert log_standard_error(steady, 0.1) < 0.1 / np.sqrt(4)
    assert log_standard_error(SettingRuns(*(part[:1] for part in steady)), 0.1) == pytest.approx(0.1)


def test_rates_lie_on_half_octaves_and_batches_are_near_by_ratio():
    assert round_to_half_octave(0.1) == round_to_half_octave(0.1001)
    assert round_to_half_octave(round_to_half_octave(0.1) * 2) == pytest.approx(2 * round_to_half_octave(0.1), rel=1e-5)
    assert find_nearest_batch([10, 100], 40) == 100
    assert find_nearest_batch([10, 100], 30) == 10


def test_never_reaching_is_apart_from_reaching():
    search = Search(BATCHES, 0.02, step)
    table = pd.DataFrame([(64, 0.1, 0, 6400, 1), (128, 0.1, 0, 9999, 0)], columns=COLUMNS)
    first, second = search.rank_settings(table)
    assert is_significantly_slower(first, second)


def test_a_grid_asks_for_everything_once_seed_by_seed():
    grid, rows = GridSearch([8, 16], 0.02, step, num_seeds=2), []
    while asked := grid.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        rows.append((*asked, 1000.0, 1))
    assert len(rows) == len(set(rows)) == 2 * 5 * 2
    assert [row[2] for row in rows] == [0] * 10 + [1] * 10
    rates = sorted({row[1] for row in rows if row[0] == 8})
    assert np.allclose(np.diff(np.log2(rates)), 1)


class Counted(GridSearch):
    """A grid that counts how often it looks for rates."""

    looks = 0

    def candidate_lrs(self, batch):
        self.looks += 1
        return super().candidate_lrs(batch)


class Told(Suggestion):
    """A trial that counts how often any is asked whether it is the same."""

    hashed = 0

    def __hash__(self):
        Told.hashed += 1
        return super().__hash__()


def test_what_a_grid_asks_next_costs_the_same_however_many_trials_it_has():
    for seeds in (2, 20):
        grid = Counted([8, 16], 0.02, step, num_seeds=seeds)
        rows = [(*one, 1000.0, 1) for one in grid.all_suggestions]
        for count in range(len(rows)):
            assert grid.suggest(pd.DataFrame(rows[:count], columns=COLUMNS)) == grid.all_suggestions[count]
        assert grid.looks == 2


def test_trials_that_are_out_of_the_question_are_gathered_once_a_question():
    grid = GridSearch([8, 16], 0.02, step, num_seeds=20)
    rows = pd.DataFrame([(*one, 1000.0, 1) for one in grid.all_suggestions[:100]], columns=COLUMNS)
    Told.hashed = 0
    assert grid.suggest(rows, lost=[Told(*one) for one in grid.all_suggestions[100:150]]) == grid.all_suggestions[150]
    assert Told.hashed == 50


def test_rates_stay_within_their_bounds():
    search, rows = Search(BATCHES, 0.02, step, lr_bounds=(0.01, 0.1)), []
    while asked := search.suggest(pd.DataFrame(rows, columns=COLUMNS)):
        rows.append((*asked, examples(asked), 1))
    rates = [row[1] for row in rows]
    assert min(rates) >= 0.01 and max(rates) <= 0.1


def test_one_rate_is_all_that_equal_bounds_leave():
    grid = GridSearch([8, 16], 0.05, step, num_seeds=1, lr_bounds=(0.05, 0.05))
    assert [grid.candidate_lrs(batch) for batch in (8, 16)] == [[0.05], [0.05]]
