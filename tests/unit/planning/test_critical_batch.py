import numpy as np
import pandas as pd
import pytest

from equipoise.planning.critical_batch import (
    RunArrays,
    bootstrap_runs,
    fit_hyperbola,
    log_examples,
    negative_log_likelihood,
)

MIN_EXAMPLES, CRITICAL_BATCH, SEED_NOISE = 20_000.0, 300.0, 0.05
BATCHES = np.array([32.0, 128.0, 512.0, 2048.0])


def build_runs_table(max_examples=np.inf):
    examples = np.exp(log_examples(BATCHES, np.log(MIN_EXAMPLES), np.log(CRITICAL_BATCH)))
    return pd.DataFrame(
        {
            "global_batch": BATCHES,
            "examples": np.minimum(examples, max_examples),
            "reached": (examples <= max_examples).astype(int),
        }
    )


def test_examples_to_target_double_at_critical_batch():
    logs = log_examples(np.array([0.0, CRITICAL_BATCH]), np.log(MIN_EXAMPLES), np.log(CRITICAL_BATCH))
    assert np.exp(logs) == pytest.approx([MIN_EXAMPLES, 2 * MIN_EXAMPLES])


def test_runs_are_ordered_by_their_batch():
    table = build_runs_table()
    shuffled, ordered = (RunArrays.from_table(rows) for rows in (table.sample(frac=1, random_state=0), table))
    assert len(set(table.global_batch)) == len(table) > 3 and not table.sample(frac=1, random_state=0).equals(table)
    for values, expected in zip(shuffled, ordered, strict=True):
        assert values.tolist() == expected.tolist()


def test_run_censored_below_the_curve_does_not_bias_the_fit():
    runs = RunArrays.from_table(build_runs_table(max_examples=100_000.0))  # the largest batch needs 156,533
    log_parameters = fit_hyperbola(runs, SEED_NOISE)
    assert np.exp(log_parameters) == pytest.approx([MIN_EXAMPLES, CRITICAL_BATCH], rel=0.05)


def test_fit_is_a_likelihood_maximum():
    rng = np.random.default_rng(0)
    table = build_runs_table()
    noise_factors = np.exp(SEED_NOISE * rng.standard_normal(len(table)))
    runs = RunArrays.from_table(table.assign(examples=table.examples * noise_factors))
    best = np.array(fit_hyperbola(runs, SEED_NOISE))
    neighbours = best + 0.05 * np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)])
    stacked = RunArrays.stack([runs] * 7)
    costs = negative_log_likelihood(stacked, SEED_NOISE, np.vstack([best, neighbours]))
    assert costs[0] <= costs[1:].min() + 1e-9


def draw_bootstrap_logs(batches, logs, seed_noise, lack_of_fit_sd, reached=None):
    """Return the log examples of 2,000 bootstrap draws, one row per draw."""
    reached = np.ones(len(batches), bool) if reached is None else np.array(reached)
    runs = RunArrays(np.array(batches, float), np.array(logs, float), reached)
    draws = [bootstrap_runs(runs, seed_noise, lack_of_fit_sd, index) for index in range(2000)]
    assert all(np.array_equal(draw.batch, runs.batch) for draw in draws)
    return np.stack([draw.log_examples for draw in draws])


def test_three_runs_of_a_batch_are_resampled_and_two_are_moved_by_the_seed_noise():
    logs = draw_bootstrap_logs([1, 1, 1, 8, 8], [1, 2, 3, 5, 7], SEED_NOISE, 0.0)
    assert set(logs[:, :3].flat) == {1.0, 2.0, 3.0}
    np.testing.assert_allclose(logs[:, 3:].mean(0), [5, 7], atol=4 * SEED_NOISE / np.sqrt(2000))
    np.testing.assert_allclose(np.cov(logs[:, 3:].T), SEED_NOISE**2 * np.eye(2), atol=0.1 * SEED_NOISE**2)


def test_lack_of_fit_shifts_all_runs_of_a_batch_together_but_none_that_was_cut_off():
    logs = draw_bootstrap_logs([4, 4, 8, 8, 8, 8], [1, 1, 5, 5, 5, 5], 0.0, 0.3, [True, False, True, True, True, True])
    assert (logs[:, 1] == 1).all() and (logs[:, 2:] == logs[:, 2:3]).all()
    np.testing.assert_allclose(np.cov(logs[:, [0, 2]].T), 0.3**2 * np.eye(2), atol=0.1 * 0.3**2)
