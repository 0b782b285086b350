"""Accuracy and calibration of a model on a split."""

import numpy as np
from msgspec import Struct

from equipoise.number_bounds import PositiveNumber
from equipoise.type_aliases import AnyArray, IntArray

CALIBRATION_BINS = 15  # confidence bins of the expected calibration error
TEMPERATURE_BOUNDS = (0.05, 20.0)


class Evaluation(Struct, frozen=True, tag_field="type", tag="classification"):
    """Accuracy overall and by class, and calibration error before and after temperature scaling."""

    accuracy: float
    """share of the test examples that are right"""
    by_class: dict[str, float]
    """accuracy of each class that has examples"""
    calibration_error: float
    """expected calibration error of the model's own scores"""
    calibrated_error: float
    """expected calibration error after dividing the logits by the temperature"""
    temperature: PositiveNumber
    """divisor of the logits that makes the scores calibrated"""


def evaluate_predictions(logits: AnyArray, labels: IntArray, class_names: list[str], temperature: float) -> Evaluation:
    """Evaluate logits of examples that neither training nor the fit of the temperature has used."""
    from scipy.special import softmax  # manifests, which commands and services read, start sooner without it

    correct = logits.argmax(1) == labels
    by_class = {
        name: float(correct[labels == index].mean())
        for index, name in enumerate(class_names)
        if (labels == index).any()
    }
    return Evaluation(
        accuracy=float(correct.mean()),
        by_class=by_class,
        calibration_error=expected_calibration_error(softmax(logits, 1), labels),
        calibrated_error=expected_calibration_error(softmax(logits / temperature, 1), labels),
        temperature=temperature,
    )


def fit_temperature(logits: AnyArray, labels: IntArray) -> float:
    """Return the temperature that minimizes the cross-entropy of softmax(logits / temperature) (Guo et al., 2017)."""
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rows = np.arange(len(labels))

    def cross_entropy(log_temperature: float) -> float:
        return float(-log_softmax(logits / np.exp(log_temperature), 1)[rows, labels].mean())

    low, high = np.log(TEMPERATURE_BOUNDS)
    return float(np.exp(minimize_scalar(cross_entropy, bounds=(low, high), method="bounded").x))


def choose_temperature(logits: AnyArray, labels: IntArray, other_logits: AnyArray, other_labels: IntArray) -> float:
    """Return the temperature fitted to some examples if it lowers the calibration error on others, else 1.

    It is never below the least temperature: a model that is right about all examples would be fitted the lowest one,
    at which all its scores are 1.0 and nothing tells which predictions are uncertain.
    """
    from scipy.special import softmax

    temperature = fit_temperature(logits, labels)
    errors = [
        expected_calibration_error(softmax(other_logits / divisor, 1), other_labels) for divisor in (1, temperature)
    ]
    return max(temperature if errors[1] < errors[0] else 1.0, find_least_temperature(logits))


def find_least_temperature(logits: AnyArray) -> float:
    """Return the temperature at which the scores expect that a share of 1 / (n + 2) of n predictions are wrong.

    That is the error rate by the rule of succession after n right predictions (Laplace, 1774). A model with a few
    errors expects more of them at the temperature that is fitted, and keeps that one.
    """
    from scipy.optimize import brentq
    from scipy.special import softmax

    error_rate = 1 / (len(logits) + 2)

    def excess(log_temperature: float) -> float:
        return float(1 - softmax(logits / np.exp(log_temperature), 1).max(1).mean()) - error_rate

    low, high = np.log(TEMPERATURE_BOUNDS)
    if excess(low) >= 0:
        return TEMPERATURE_BOUNDS[0]
    return float(np.exp(brentq(excess, low, high))) if excess(high) > 0 else TEMPERATURE_BOUNDS[1]


def expected_calibration_error(scores: AnyArray, labels: IntArray) -> float:
    """Return the mean gap between confidence and accuracy over confidence bins, weighted by their examples."""
    confidence, correct = scores.max(1), scores.argmax(1) == labels
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = [
        abs(float(correct[bins == index].mean() - confidence[bins == index].mean())) * (bins == index).mean()
        for index in set(bins)
    ]
    return float(sum(gaps))
