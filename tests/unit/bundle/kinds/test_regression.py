"""Split-conformal intervals contain the share of new values that they are to contain, whatever the errors."""

import numpy as np
import pytest

from equipoise.bundle.kinds.regression import conformal_half_width, evaluate_regression


def test_half_width_is_the_smallest_that_contains_enough_errors_for_one_more_row():
    errors = np.array([-3.0, 1, -2, 5, 4, -7, 6, 8, -9])
    assert conformal_half_width(errors, 0.9) == 9  # the ninth of nine: ceil(10 * 0.9)
    assert conformal_half_width(errors, 0.5) == 5
    assert conformal_half_width(errors[:8], 0.9) is None


@pytest.mark.parametrize("draw", ["normal", "standard_cauchy", "exponential"])
def test_interval_contains_at_least_the_level_of_new_values(draw):
    rng = np.random.default_rng(0)
    covered = [abs(getattr(rng, draw)()) <= conformal_half_width(getattr(rng, draw)(size=29), 0.9) for _ in range(4000)]
    # 27 of 30: exactly 0.9 for continuous errors; 4,000 draws have a standard error of 0.0047
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)


def test_evaluation_measures_the_coverage_on_the_test_split():
    evaluation = evaluate_regression(0.5, np.array([3.0, -4, 0, 20]), np.arange(1.0, 20))
    assert (evaluation.r2, evaluation.half_width, evaluation.coverage) == (0.5, 18, 0.75)
    assert evaluation.rmse == pytest.approx(np.sqrt((9 + 16 + 400) / 4))
    few = evaluate_regression(0.5, np.array([3.0]), np.arange(8.0))
    assert few.half_width is None and few.coverage is None
