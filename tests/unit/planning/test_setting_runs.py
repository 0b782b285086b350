"""Tests of what the runs of settings say of other batches."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from equipoise.planning.setting_runs import (
    SettingRuns,
    best_examples_by_batch,
    censored_mean_log,
    estimate_lr_curvature,
    expected_examples,
    extrapolate_examples,
    group_by_setting,
    pool_seed_noise,
    shrink_seed_noise,
)

COLUMNS = ["global_batch", "lr", "seed", "examples", "reached"]


def test_line_over_the_batch_goes_on_beyond_the_largest_one():
    hyperbola = {batch: 5000 * (1 + batch / 100) for batch in (8, 32, 128)}
    assert extrapolate_examples(hyperbola, 1024) == pytest.approx(5000 * (1 + 1024 / 100))


def test_flattest_line_counts_and_none_that_falls():
    assert extrapolate_examples({10: 1000.0, 20: 1100.0, 30: 1600.0}, 40) == pytest.approx(1600 + 10 * 30)
    assert extrapolate_examples({10: 2000.0, 20: 1100.0, 30: 1600.0}, 40) == 1600.0


def test_one_smaller_batch_is_a_level_line_and_larger_ones_say_nothing():
    assert extrapolate_examples({10: 1000.0, 80: 9000.0}, 40) == 1000.0
    assert extrapolate_examples({80: 9000.0}, 40) == 0.0


def test_best_learning_rate_of_a_batch_counts_and_without_the_target_the_longest_run():
    rows = [(8, 0.1, 0, 900, 0), (8, 0.1, 1, 500, 1), (8, 0.2, 0, 1100, 1), (16, 0.1, 0, 700, 0), (16, 0.2, 0, 300, 0)]
    assert best_examples_by_batch(pd.DataFrame(rows, columns=COLUMNS)) == {8: 1100.0, 16: 700.0}


def build_runs(*rows):
    return pd.DataFrame(rows, columns=COLUMNS)


def test_runs_are_grouped_by_batch_and_learning_rate_in_their_order():
    runs = build_runs((8, 0.1, 0, 900, 1), (16, 0.1, 0, 500, 0), (8, None, 0, 700, 1), (8, 0.1, 1, 800, 0))
    groups = group_by_setting(runs)
    assert [*groups] == [(8, 0.1), (16, 0.1), (8, 0.0)]
    assert groups[8, 0.1].examples.tolist() == [900, 800] and groups[8, 0.1].reached.tolist() == [True, False]
    assert groups[16, 0.1].sum_of_squares == 0 and len(groups[16, 0.1].reached_log_examples) == 0


def build_setting(*logs, missed=()):
    examples = np.exp([*logs, *missed])
    return SettingRuns(examples, np.array([True] * len(logs) + [False] * len(missed)))


def test_noise_between_seeds_is_pooled_over_the_runs_that_reached_the_target():
    settings = [build_setting(1.0, 1.2, missed=[9.0]), build_setting(5.0, 5.3, 5.6), build_setting(2.0)]
    assert pool_seed_noise(settings) == pytest.approx(math.sqrt((0.02 + 0.18) / 3))
    assert pool_seed_noise([build_setting(missed=[1.0, 2.0]), *settings]) == pool_seed_noise(settings)


def test_noise_is_never_trusted_to_be_tiny():
    for settings in ([], [build_setting(1.0)], [build_setting(missed=[1.0])], [build_setting(1.0, 1.001)]):
        assert pool_seed_noise(settings) == 0.02
    assert pool_seed_noise([build_setting(1.0, 1.05)]) == pytest.approx(0.05 / math.sqrt(2))


def test_noise_of_few_runs_is_shrunk_to_the_usual_one():
    usual = shrink_seed_noise(5.0, 0)
    assert 0.1 <= usual <= 0.2 and shrink_seed_noise(usual, 7) == pytest.approx(usual)
    assert shrink_seed_noise(0.5, 1) == pytest.approx(math.sqrt((usual**2 + 0.25) / 2))
    assert shrink_seed_noise(0.5, 3) == pytest.approx(math.sqrt((usual**2 + 3 * 0.25) / 4))


def test_examples_of_runs_that_were_cut_off_count():
    assert expected_examples(build_setting(np.log(300), np.log(500), missed=[np.log(400)])) == pytest.approx(600)
    assert expected_examples(build_setting(missed=[1.0])) == math.inf


def test_curvature_is_the_median_over_the_neighbours_of_the_best_rate():
    best = (8, 0.1, 0, 1000, 1)
    octave_below, octave_above = (8, 0.05, 0, 1000 * math.exp(0.5), 1), (8, 0.2, 0, 1000 * math.exp(0.3), 1)
    assert estimate_lr_curvature(build_runs(best, octave_below, octave_above)) == pytest.approx(0.4)
    half_octave = (16, 0.1 * 2**0.5, 0, 2000 * math.exp(0.15), 1)
    other_batch = (16, 0.1, 0, 2000, 1)
    assert estimate_lr_curvature(build_runs(half_octave, other_batch)) == pytest.approx(0.6)
    assert estimate_lr_curvature(build_runs(best, octave_below, octave_above, half_octave, other_batch)) == (
        pytest.approx(0.5)
    )
    wide = (8, 0.1 * 2**1.5, 0, 1000 * math.exp(0.9), 1)
    assert estimate_lr_curvature(build_runs(best, wide)) == pytest.approx(0.4)


@pytest.mark.parametrize(
    "other", [(8, 0.4, 0, 9000, 1), (8, 0.2, 0, 9000, 0), (8, None, 0, 500, 1), (16, 0.2, 0, 9000, 1)]
)
def test_rates_that_are_no_neighbours_tell_no_curvature(other):
    assert estimate_lr_curvature(build_runs((8, 0.1, 0, 1000, 1), other)) == 0
    assert estimate_lr_curvature(build_runs(other)) == 0


def test_mean_of_logs_with_runs_that_were_cut_off_is_the_most_likely_one():
    def build_table(logs, reached):
        return pd.DataFrame({"examples": np.exp(logs), "reached": reached})

    assert censored_mean_log(build_table([1.0, 2.0], [1, 1]), 0.1) == pytest.approx(1.5)
    assert censored_mean_log(build_table([1.0, 2.0], [0, 0]), 0.1) == math.inf
    logs, reached, noise = np.array([1.0, 1.2, 1.1, 0.4]), np.array([1, 1, 0, 0]), 0.15
    means = np.linspace(1.0, 1.4, 40_001)[:, None]
    deviations = (logs - means) / noise
    likelihood = np.where(reached == 1, norm.logpdf(deviations), norm.logsf(deviations)).sum(1)
    best = float(means[likelihood.argmax(), 0])
    assert censored_mean_log(build_table(logs, reached), noise) == pytest.approx(best, abs=2e-5)
    hard = build_table([1.0, *[3.0] * 6], [1] + [0] * 6)  # the mean lies far above every run that reached the target
    assert censored_mean_log(hard, 0.1) > 2.5
