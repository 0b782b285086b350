import numpy as np
import pandas as pd
import pytest

from equipoise.planning.critical_batch import RunArrays, fit_hyperbola, log_examples, negative_log_likelihood

LEAST, CRITICAL, NOISE = 20_000.0, 300.0, 0.05
BATCHES = np.array([32.0, 128.0, 512.0, 2048.0])


def table(cap=np.inf):
    examples = np.exp(log_examples(BATCHES, np.log(LEAST), np.log(CRITICAL)))
    return pd.DataFrame(
        {"global_batch": BATCHES, "examples": np.minimum(examples, cap), "reached": (examples <= cap).astype(int)}
    )


def test_it_doubles_at_the_critical_batch():
    logs = log_examples(np.array([0.0, CRITICAL]), np.log(LEAST), np.log(CRITICAL))
    assert np.exp(logs) == pytest.approx([LEAST, 2 * LEAST])


def test_a_run_cut_off_below_the_curve_says_nothing_against_it():
    found = fit_hyperbola(RunArrays.from_table(table(cap=100_000.0)), NOISE)  # the largest batch needs 156,533
    assert np.exp(found) == pytest.approx([LEAST, CRITICAL], rel=0.05)


def test_no_point_near_the_fit_is_more_likely():
    rng = np.random.default_rng(0)
    noisy = table()
    runs = RunArrays.from_table(noisy.assign(examples=noisy.examples * np.exp(NOISE * rng.standard_normal(len(noisy)))))
    best = np.array(fit_hyperbola(runs, NOISE))
    around = best + 0.05 * np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (-1, 1)])
    stacked = RunArrays.stack([runs] * 7)
    costs = negative_log_likelihood(stacked, NOISE, np.vstack([best, around]))
    assert costs[0] <= costs[1:].min() + 1e-9
