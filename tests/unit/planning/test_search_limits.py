"""Limits of the search policy: where a setting stops to be tried, and how errors of settings add up."""

import math

import numpy as np
import pandas as pd
import pytest

from equipoise.planning.search import (
    MAX_CONTENDERS,
    MAX_LRS_PER_BATCH,
    MAX_SEEDS_PER_SETTING,
    MIN_CONTENDER_SEEDS,
    Search,
    SettingResult,
    Suggestion,
    fastest_by_batch,
    find_nearest_batch,
    is_significantly_slower,
    log_standard_error,
    round_to_half_octave,
)
from equipoise.planning.setting_runs import SettingRuns
from tests.unit.planning.test_search import BATCHES, COLUMNS, NO_TRIALS, step_seconds


def build_search(batches=BATCHES, base_lr=0.125, **options):
    return Search(batches, base_lr, step_seconds, **options)


def build_table(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


def build_result(batch=64, lr=0.1, seconds=1.0, log_error=0.05, seeds=1):
    return SettingResult(batch, lr, seconds, log_error, seeds)


def test_error_of_a_setting_joins_its_own_scatter_with_that_of_all():
    def error(examples, reached, noise=0.2):
        return log_standard_error(SettingRuns(np.array(examples, float), np.array(reached, bool)), noise)

    assert error([1000] * 4, [1] * 4) == pytest.approx(math.sqrt(2 * 0.04 / (2 + 4 - 1) / 4))
    squares = 2 * math.log(2) ** 2  # of 1000 and 4000 about their mean
    assert error([1000, 4000], [1, 1]) == pytest.approx(math.sqrt((2 * 0.04 + squares) / 3 / 2))
    assert error([1000] * 4, [1, 1, 0, 0]) == pytest.approx(math.sqrt(2 * 0.04 / 3 / 4 + 0.5 / 2))
    assert error([1000], [0]) == math.inf


@pytest.mark.parametrize(("log_ratio", "slower"), [(0.0999, False), (0.1001, True), (-1.0, False), (math.inf, True)])
def test_a_setting_is_slower_beyond_two_standard_errors_of_both(log_ratio, slower):
    first, second = build_result(log_error=0.03), build_result(seconds=math.exp(log_ratio), log_error=0.04)
    assert is_significantly_slower(first, second) == slower


def test_rounding_is_to_the_nearest_half_octave():
    assert [round_to_half_octave(2**power) for power in (-3.24, -3.26, 0.0, 0.24, 0.26)] == pytest.approx(
        [2**-3, 2**-3.5, 1, 1, 2**0.5], rel=1e-5
    )
    assert round_to_half_octave(0.1) == float(f"{2**-3.5:.6g}")


def test_nearest_batch_is_by_ratio_and_the_first_of_equally_near_ones():
    assert find_nearest_batch([16, 64], 31) == 16 and find_nearest_batch([16, 64], 33) == 64
    assert find_nearest_batch([16, 64], 32) == 16


@pytest.mark.parametrize(
    ("batches", "ladder"),
    [
        ([8, 16, 32, 64, 128], [8, 32, 128]),
        ([8, 16], [8, 16]),
        ([8], [8]),
        ([64, 8, 16, 32, 128, 256, 512], [8, 32, 128, 512]),
    ],
)
def test_first_ladder_has_steps_of_four(batches, ladder):
    assert build_search(batches).initial_batches() == ladder
    assert build_search(batches).batches == sorted(batches)


def test_learning_rates_reach_four_octaves_to_either_side_of_the_rule():
    search = build_search()
    assert search.sqrt_scaled_lr(8) == 0.125 and search.sqrt_scaled_lr(32) == 0.25
    assert search.candidate_lrs(8) == pytest.approx([0.125 * 2.0**power for power in range(-4, 5)], rel=1e-5)
    bounded = build_search(lr_bounds=(0.05, 0.3))
    assert bounded.candidate_lrs(8) == pytest.approx([0.05, 2**-4, 0.125, 0.25, 0.3], rel=1e-5)
    assert [bounded.clip_lr(lr) for lr in (0.01, 0.05, 0.1, 0.3, 9.0)] == [0.05, 0.05, 0.1, 0.3, 0.3]


def test_results_are_ranked_by_time_then_batch_then_rate():
    search = Search([8, 16], 0.1, lambda batch: batch / 8)  # so that as many examples take as long at any batch
    rows = [(16, 0.1, 0, 800, 1), (8, 0.2, 0, 800, 1), (8, 0.1, 0, 800, 1), (8, 0.4, 0, 80, 1), (16, 0.2, 0, 9, 0)]
    results = search.rank_settings(build_table(*rows))
    assert [(result.global_batch, result.lr) for result in results] == [
        (8, 0.4), (8, 0.1), (8, 0.2), (16, 0.1), (16, 0.2),
    ]  # fmt: skip
    assert [result.seconds for result in results] == pytest.approx([10, 100, 100, 100, math.inf])
    assert [result.num_seeds for result in results] == [1] * 5
    assert fastest_by_batch(results) == [results[0], results[3]]


def test_noise_between_seeds_is_taken_for_a_twentieth_at_least():
    (result,) = build_search().rank_settings(build_table((8, 0.1, 0, 800, 1)))
    assert result.log_error == pytest.approx(0.05)


def suggested_lrs(search, results, rows):
    return [(trial.global_batch, trial.lr) for trial in search._suggest_lrs(build_table(*rows), results)]


def test_rates_to_both_sides_of_the_best_one_are_tried_up_to_the_ends_of_the_reach():
    search = build_search()
    rows = [(8, 0.125, 0, 900, 1)]
    assert suggested_lrs(search, [build_result(8, 0.125)], rows) == [(8, 0.25), (8, 0.0625)]
    assert suggested_lrs(search, [build_result(8, 2.0)], rows) == [(8, 1.0)]
    assert suggested_lrs(search, [build_result(8, 2**-7)], rows) == [(8, 2**-6)]


def test_no_more_rates_are_tried_at_a_batch_than_the_limit():
    search, result = build_search(), build_result(8, 0.125)
    rows = [(8, 0.1 + 0.01 * index, 0, 900, 1) for index in range(MAX_LRS_PER_BATCH)]
    assert suggested_lrs(search, [result], rows) == [] and suggested_lrs(search, [result], rows[1:])


def test_a_diverged_batch_is_tried_beyond_both_ends():
    search = build_search()
    rows = [(8, 0.125, 0, 900, 0), (8, 0.5, 0, 900, 0)]
    assert suggested_lrs(search, [build_result(8, 0.125, seconds=math.inf)], rows) == [(8, 0.0625), (8, 1.0)]


@pytest.mark.parametrize(("seconds", "is_tried"), [(3.0, True), (3.01, False)])
def test_batches_far_from_the_best_are_tried_up_to_three_times_its_time(seconds, is_tried):
    search = build_search()
    best, far = build_result(8, 0.125), build_result(64, 0.25, seconds=seconds)
    rows = [(8, 0.125, 0, 900, 1), (64, 0.25, 0, 900, 1)]
    assert any(batch == 64 for batch, _ in suggested_lrs(search, [best, far], rows)) == is_tried
    near = build_result(16, 0.25, seconds=seconds)  # a neighbour of the best batch is
    assert any(batch == 16 for batch, _ in suggested_lrs(search, [best, near], [*rows, (16, 0.25, 0, 9, 1)]))


def test_neighbours_of_the_best_batch_are_tried_at_its_scaled_rate():
    search = build_search([8, 32, 128])
    assert search._suggest_batches([build_result(32, 0.25)]) == [Suggestion(128, 0.5, 0), Suggestion(8, 0.125, 0)]
    assert search._suggest_batches([build_result(8, 0.25)]) == [Suggestion(32, 0.5, 0)]
    assert search._suggest_batches([build_result(128, 0.25)]) == [Suggestion(32, 0.125, 0)]
    assert search._suggest_batches([build_result(32, 0.25), build_result(8), build_result(128)]) == []


def test_seeds_go_to_the_best_and_its_rivals_that_have_the_fewest():
    search = build_search()
    best, rival = build_result(8, seeds=2), build_result(16, seconds=1.05, seeds=1)
    slower = build_result(32, seconds=9.0)
    trials = search._suggest_seeds([best, rival, slower])
    assert [(trial.global_batch, trial.seed) for trial in trials] == [
        (16, 1), (8, 2), (16, 2), (16, 3), (16, 4), (8, 3), (8, 4),
    ]  # fmt: skip


def test_seeds_end_once_the_best_has_enough_and_no_rival():
    search, slower = build_search(), build_result(16, seconds=9.0)
    enough, one_less = (build_result(8, seeds=seeds) for seeds in (MIN_CONTENDER_SEEDS, MIN_CONTENDER_SEEDS - 1))
    assert search._suggest_seeds([enough, slower]) == []
    assert [trial.seed for trial in search._suggest_seeds([one_less, slower])] == [MIN_CONTENDER_SEEDS - 1]
    rival = build_result(16, seconds=1.01, seeds=MAX_SEEDS_PER_SETTING)
    full = build_result(8, seeds=MAX_SEEDS_PER_SETTING)
    assert search._suggest_seeds([full, rival]) == []
    assert len(search._suggest_seeds([full, rival._replace(num_seeds=MAX_SEEDS_PER_SETTING - 1)])) == 1


def test_no_more_rivals_get_seeds_than_the_limit():
    rivals = [
        build_result(16, 0.1 * index, seconds=1 + 0.001 * index, seeds=5) for index in range(1, MAX_CONTENDERS + 3)
    ]
    trials = build_search()._suggest_seeds([build_result(8, seeds=5), *rivals])
    assert {trial.lr for trial in trials if trial.global_batch == 16} == {rival.lr for rival in rivals[:MAX_CONTENDERS]}


def test_free_slots_get_seeds_of_the_best_settings_that_reached_the_target():
    search = build_search()
    assert search._extra_seeds(NO_TRIALS) == []
    rows = [(batch, 0.125, 0, 800, 1) for batch in (8, 16, 32, 64)]
    extra = search._extra_seeds(build_table(*rows, (128, 0.125, 0, 9, 0)))
    assert len(extra) == MAX_CONTENDERS * MAX_SEEDS_PER_SETTING and {trial.seed for trial in extra[:3]} == {0}
    assert extra[-1].seed == MAX_SEEDS_PER_SETTING - 1
    assert search._extra_seeds(build_table((8, 0.125, 0, 800, 0))) == []
