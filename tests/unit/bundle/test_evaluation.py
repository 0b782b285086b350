import numpy as np
import pytest
from scipy.special import softmax

from equipoise.bundle.evaluation import (
    confusion_matrix,
    evaluate_predictions,
    expected_calibration_error,
    fit_temperature,
)


def drawn(heat, count=4000, seed=0):
    """Scores whose softmax is right about the labels once divided by `heat`."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (count, 5))
    chances = softmax(logits, 1)
    labels = (chances.cumsum(1) > rng.random((count, 1))).argmax(1)
    return logits * heat, labels


@pytest.mark.parametrize("heat", [0.4, 1.0, 3.0])
def test_the_temperature_that_was_multiplied_in_is_found(heat):
    logits, labels = drawn(heat)
    assert fit_temperature(logits, labels) == pytest.approx(heat, rel=0.07)
    assert expected_calibration_error(softmax(logits / heat, 1), labels) < 0.03


def test_confidence_that_is_too_high_is_an_error_that_the_temperature_takes_away():
    found = evaluate_predictions(*drawn(3.0), list("abcde"), 3.0)
    assert found.calibrated_error < 0.03 < 0.1 < found.calibration_error
    assert found.accuracy == pytest.approx(np.mean(list(found.by_class.values())), abs=0.02)


def test_columns_of_a_confusion_are_shares_of_each_class():
    table = confusion_matrix(np.eye(3)[[0, 0, 1, 2, 2]], np.array([0, 0, 0, 2, 2]), 4)
    np.testing.assert_allclose(table[:, 0], [2 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(table[:, 2], [0, 0, 1, 0])
    np.testing.assert_allclose(table[:, [1, 3]], np.eye(4)[:, [1, 3]])


def test_a_class_without_examples_has_no_accuracy():
    assert set(evaluate_predictions(np.eye(3), np.array([0, 1, 1]), list("abc"), 1.0).by_class) == {"a", "b"}
