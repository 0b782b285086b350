"""Estimate accuracy under drift without labels, from the same corruption tried on labelled images at publication.

Confidence alone is not enough: under a change that a model never met, it may be confident and wrong. So an estimate is
given only for causes and sizes that were tried, and only where the model's own confidence moved as it did then.
"""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.charts.sums import sum_over_classes
from equipoise.drift.diagnosis.cause import Cause
from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.diagnosis.root_cause import MOSTLY_EXPLAINED_SHARE
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.proportions import Z_95, wilson_interval
from equipoise.type_aliases import FloatArray

MAX_LOG_ODDS_DIFFERENCE = 0.35  # standard deviations by which mean log odds may differ from those of the signature
LOSS_ERROR_SHARE = 0.15  # error of the predicted accuracy loss, as a share of it, measured on held-out corruptions
MIN_CONDITION_SHARE = 0.02  # smaller shares of a condition in a window are images that were assigned to it by chance


@dataclass(frozen=True)
class AccuracyEstimate:
    """Estimated accuracy as a fraction, with a 95 % interval."""

    value: float
    """estimate"""
    low: float
    """lower end of the interval"""
    high: float
    """upper end of the interval"""

    @property
    def half_width(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def reference_accuracy(window: Window) -> AccuracyEstimate | None:
    """Return the model's accuracy on the reference images, in the window's mix of conditions.

    None if the window shows a condition of which no reference image is labelled.
    """
    profile, labelled = window.profile, window.profile.labelled
    if (by_condition := profile.condition_accuracy) is not None:
        counts = sum_over_classes(window.counts, len(profile.class_names))
        shares = counts / max(counts.sum(), 1)
        shares = np.where(shares < MIN_CONDITION_SHARE, 0, shares)
        shares = shares / max(shares.sum(), MIN_CONDITION_SHARE)
        if (by_condition.labelled[shares > 0] == 0).any():
            return None
        image_counts = np.maximum(by_condition.labelled, 1)
        return measured_accuracy(
            float(shares @ (by_condition.correct / image_counts)), 1 / max((shares**2 / image_counts).sum(), 1e-12)
        )
    return measured_accuracy(float(labelled.prior @ np.diag(labelled.confusion)), profile.baseline.usual.counts.sum())


def estimate_accuracy(window: Window, cause: Cause | None) -> AccuracyEstimate | None:
    """Estimate accuracy in a window, with the cause of its drift if any; None where it cannot be known.

    A number has no accuracy, and how rows or texts that have moved change it was never tried.
    """
    if not window.profile.schema.has_accuracy:
        return None
    if cause is None:
        return reference_accuracy(window)
    if cause.name in ("label shift", "answer"):
        return accuracy_under_label_shift(window)
    if window.profile.schema.kind != "image" or not cause.effects:
        return None
    if len(cause.effects) > 1 and cause.effects[0].explained < MOSTLY_EXPLAINED_SHARE:
        return None  # combinations of corruptions were never tried
    if not matches_signature(window, cause.effects[0]):
        return None
    return accuracy_from_signature(window.profile, cause.effects[0])


def matches_signature(window: Window, effect: Effect) -> bool:
    """Return whether an effect lies within the sizes tried and the model is as confident as it was then."""
    signatures, column = window.profile.signatures, window.profile.schema.names.index("log odds")
    rows = np.flatnonzero(signatures.kind == effect.kind)
    if effect.place >= len(rows) and len(rows) > 1:  # at the end of the path the true size may be larger still
        return False
    odds = interpolate_response(signatures.scores[rows, column], 0.0, effect.place)
    return bool(
        abs(float(window.scores[column]) - odds)
        < MAX_LOG_ODDS_DIFFERENCE + Z_95 / np.sqrt(window.effective_sample_size)
    )


def accuracy_from_signature(profile: ReferenceProfile, effect: Effect) -> AccuracyEstimate:
    """Estimate accuracy from what the same corruption left when it was tried on labelled reference images.

    The interval covers the uncertainty of the size, the error of the predicted loss and the number of images tried.
    """
    signatures = profile.signatures
    rows = np.flatnonzero(signatures.kind == effect.kind)
    clean = float(signatures.clean[0])
    sizes = np.concatenate([signatures.none[effect.kind : effect.kind + 1], signatures.size[rows]])
    order = np.argsort(sizes)
    accuracies = np.concatenate([[clean], signatures.accuracy[rows]])
    value, *ends = (
        float(np.interp(size, sizes[order], accuracies[order])) for size in (effect.value, effect.low, effect.high)
    )
    margin = LOSS_ERROR_SHARE * abs(clean - value) + measured_accuracy(value, float(signatures.tried)).half_width
    return AccuracyEstimate(value, max(min(value, *ends) - margin, 0), min(max(value, *ends) + margin, 1))


def interpolate_response(values: FloatArray, neutral_value: float, position: float) -> float:
    """Interpolate a response at a position along the sizes of one corruption; position 0 is no change."""
    line = np.concatenate([[neutral_value], values])
    return float(np.interp(position, np.arange(len(line)), line))


def accuracy_under_label_shift(window: Window) -> AccuracyEstimate:
    """Estimate accuracy when only class shares have changed and the precision of each predicted class is unchanged."""
    labelled, share = window.profile.labelled, window.class_counts / max(window.image_count, 1)
    correct = np.diag(labelled.confusion) * labelled.prior
    predicted = labelled.confusion @ labelled.prior
    precision = np.where(predicted > 0, correct / np.maximum(predicted, 1e-12), 1)
    return measured_accuracy(float(share @ precision), window.effective_sample_size)


def measured_accuracy(accuracy: float, image_count: float) -> AccuracyEstimate:
    """Return an accuracy measured on a number of images, with its Wilson score interval."""
    return AccuracyEstimate(accuracy, *wilson_interval(accuracy, image_count))
