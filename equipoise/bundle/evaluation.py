"""How well a model does on a split, and how well it knows it."""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from equipoise.type_aliases import AnyArray, IntArray

CALIBRATION_BINS = 15  # of confidence, for the calibration error
TEMPERATURE_BOUNDS = (0.05, 20.0)


@dataclass(frozen=True)
class Evaluation:
    """Accuracy of all and by class, and calibration before and after the temperature."""

    accuracy: float
    by_class: dict[str, float]
    calibration_error: float
    calibrated_error: float
    temperature: float


def evaluate_predictions(logits: AnyArray, labels: IntArray, class_names: list[str], temperature: float) -> Evaluation:
    """On examples that neither training nor the temperature has seen."""
    right = logits.argmax(1) == labels
    by_class = {
        name: float(right[labels == place].mean()) for place, name in enumerate(class_names) if (labels == place).any()
    }
    return Evaluation(
        accuracy=float(right.mean()),
        by_class=by_class,
        calibration_error=expected_calibration_error(softmax(logits, 1), labels),
        calibrated_error=expected_calibration_error(softmax(logits / temperature, 1), labels),
        temperature=temperature,
    )


def fit_temperature(logits: AnyArray, labels: IntArray) -> float:
    """By what scores are divided before softmax so that they are as likely as they say (Guo et al., 2017)."""
    rows = np.arange(len(labels))

    def surprise(log: float) -> float:
        return float(-log_softmax(logits / np.exp(log), 1)[rows, labels].mean())

    low, high = np.log(TEMPERATURE_BOUNDS)
    return float(np.exp(minimize_scalar(surprise, bounds=(low, high), method="bounded").x))


def expected_calibration_error(scores: AnyArray, labels: IntArray) -> float:
    """How far confidence is from accuracy, over bins of confidence with as many examples as they hold."""
    confidence, right = scores.max(1), scores.argmax(1) == labels
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = [
        abs(float(right[bins == one].mean() - confidence[bins == one].mean())) * (bins == one).mean()
        for one in set(bins)
    ]
    return float(sum(gaps))


def confusion_matrix(logits: AnyArray, labels: IntArray, class_count: int) -> AnyArray:
    """Share of each class (column) that is called each class (row); a class without examples is called itself."""
    table = np.zeros((class_count, class_count))
    np.add.at(table, (logits.argmax(1), labels), 1)
    seen = table.sum(0)
    return np.where(seen > 0, table / np.maximum(seen, 1), np.eye(class_count))
