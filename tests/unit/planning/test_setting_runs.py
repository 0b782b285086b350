"""Tests of what the runs of settings say of other batches."""

import pandas as pd
import pytest

from equipoise.planning.setting_runs import best_examples_by_batch, extrapolate_examples

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
