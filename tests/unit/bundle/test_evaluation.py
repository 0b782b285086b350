import numpy as np
import pytest
from scipy.special import softmax

from equipoise.bundle.evaluation import (
    choose_temperature,
    evaluate_predictions,
    expected_calibration_error,
    fit_temperature,
)


def draw_logits(temperature, count=4000, seed=0):
    """Draw logits that are calibrated once divided by `temperature`, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (count, 5))
    probabilities = softmax(logits, 1)
    labels = (probabilities.cumsum(1) > rng.random((count, 1))).argmax(1)
    return logits * temperature, labels


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_fit_recovers_the_temperature_of_the_logits(temperature):
    logits, labels = draw_logits(temperature)
    assert fit_temperature(logits, labels) == pytest.approx(temperature, rel=0.07)
    assert expected_calibration_error(softmax(logits / temperature, 1), labels) < 0.03


def test_temperature_removes_the_calibration_error_of_overconfident_logits():
    evaluation = evaluate_predictions(*draw_logits(3.0), list("abcde"), 3.0)
    assert evaluation.calibrated_error < 0.03 < 0.1 < evaluation.calibration_error
    assert evaluation.accuracy == pytest.approx(np.mean(list(evaluation.by_class.values())), abs=0.02)


def test_temperature_that_calibrates_other_examples_worse_is_not_used():
    overconfident, others = draw_logits(3.0), draw_logits(3.0, seed=1)
    assert choose_temperature(*overconfident, *others) == fit_temperature(*overconfident)
    assert choose_temperature(*overconfident, *draw_logits(1.0, seed=1)) == 1.0


def test_class_without_examples_has_no_accuracy():
    assert set(evaluate_predictions(np.eye(3), np.array([0, 1, 1]), list("abc"), 1.0).by_class) == {"a", "b"}
