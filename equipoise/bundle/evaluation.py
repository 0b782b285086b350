"""How well a model does on a split, and how well it knows it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

Array = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]

BINS = 15  # of confidence, for the calibration error
TEMPERATURES = (0.05, 20.0)


@dataclass(frozen=True)
class Judged:
    """Accuracy of all and by class, and calibration before and after the temperature."""

    accuracy: float
    by_class: dict[str, float]
    calibration_error: float
    calibrated_error: float
    temperature: float


def judged(logits: Array, labels: Labels, classes: list[str], temperature: float) -> Judged:
    """On examples that neither training nor the temperature has seen."""
    right = logits.argmax(1) == labels
    by_class = {
        name: float(right[labels == place].mean()) for place, name in enumerate(classes) if (labels == place).any()
    }
    return Judged(
        accuracy=float(right.mean()),
        by_class=by_class,
        calibration_error=calibration_error(softmax(logits, 1), labels),
        calibrated_error=calibration_error(softmax(logits / temperature, 1), labels),
        temperature=temperature,
    )


def temperature(logits: Array, labels: Labels) -> float:
    """By what scores are divided before softmax so that they are as likely as they say (Guo et al., 2017)."""
    rows = np.arange(len(labels))

    def surprise(log: float) -> float:
        return float(-log_softmax(logits / np.exp(log), 1)[rows, labels].mean())

    low, high = np.log(TEMPERATURES)
    return float(np.exp(minimize_scalar(surprise, bounds=(low, high), method="bounded").x))


def calibration_error(scores: Array, labels: Labels) -> float:
    """How far confidence is from accuracy, over bins of confidence with as many examples as they hold."""
    confidence, right = scores.max(1), scores.argmax(1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [
        abs(float(right[bins == one].mean() - confidence[bins == one].mean())) * (bins == one).mean()
        for one in set(bins)
    ]
    return float(sum(gaps))


def confusion(logits: Array, labels: Labels, count: int) -> Array:
    """Share of each class (column) that is called each class (row); a class without examples is called itself."""
    table = np.zeros((count, count))
    np.add.at(table, (logits.argmax(1), labels), 1)
    seen = table.sum(0)
    return np.where(seen > 0, table / np.maximum(seen, 1), np.eye(count))
