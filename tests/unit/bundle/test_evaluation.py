import numpy as np
import pytest
from scipy.special import softmax

from equipoise.bundle.evaluation import (
    choose_temperature,
    evaluate_predictions,
    expected_calibration_error,
    find_least_temperature,
    fit_temperature,
)


def draw_logits(temperature, count=4000, seed=0, sharpness=1):
    """Draw logits that are calibrated once divided by `temperature`, and labels."""
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(0, 2, (count, 5))
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


def draw_perfect_logits(scale, count=268, seed=0):
    """Draw logits of a model that is right about every example, by margins that differ, and labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, count)
    margins = rng.uniform(0.5, 2, (count, 1))
    return scale * margins * np.eye(5)[labels], labels


@pytest.mark.parametrize("scale", [0.5, 8.0, 60.0])
def test_scores_of_a_model_without_errors_tell_which_predictions_are_uncertain(scale):
    perfect, others = draw_perfect_logits(scale), draw_perfect_logits(scale, seed=1)
    temperature = choose_temperature(*perfect, *others)
    confidence = softmax(perfect[0] / temperature, 1).max(1)
    assert 1 - confidence.mean() == pytest.approx(1 / 270)
    assert confidence.min() < 0.99 and len(np.unique(confidence)) == 268
    assert (confidence.argsort() == perfect[0].max(1).argsort()).all()


def test_least_temperature_follows_the_closed_form_for_equal_margins():
    logits = 7.0 * np.eye(2)[np.arange(98) % 2]  # 1 / (1 + exp(7 / T)) = 1 / 100
    assert find_least_temperature(logits) == pytest.approx(7 / np.log(99))
    assert find_least_temperature(logits / 1000) == 0.05
    assert find_least_temperature(logits * 1000) == 20.0


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
@pytest.mark.parametrize("sharpness", [1, 3])
def test_temperature_of_a_model_with_errors_is_the_fitted_one(temperature, sharpness):
    logits, labels = draw_logits(temperature, count=300, sharpness=sharpness)
    assert find_least_temperature(logits) < 0.7 * fit_temperature(logits, labels)


def test_class_without_examples_has_no_accuracy():
    assert set(evaluate_predictions(np.eye(3), np.array([0, 1, 1]), list("abc"), 1.0).by_class) == {"a", "b"}


@pytest.mark.parametrize(
    ("confidences", "is_right", "error"),
    [
        ((0.97, 1.0), (True, False), 0.485),  # one bin: half are right, at a mean confidence of 0.985
        ((0.66, 0.67), (True, False), (0.34 + 0.67) / 2),  # on both sides of 10 / 15
        ((0.601, 0.66), (True, False), 0.1305),  # between 9 / 15 and 10 / 15
        ((0.75, 0.75, 0.75, 0.75), (True, True, True, False), 0.0),
    ],
)
def test_calibration_error_is_the_mean_gap_of_fifteen_bins(confidences, is_right, error):
    scores = np.array([[confidence, 1 - confidence] for confidence in confidences])
    labels = np.array([0 if right else 1 for right in is_right])
    assert expected_calibration_error(scores, labels) == pytest.approx(error)
