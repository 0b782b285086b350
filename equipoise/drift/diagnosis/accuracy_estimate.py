"""What drift does to accuracy, without labels: known where the same change was tried on labelled pictures.

Confidence alone does not tell it: under a change that a model never met it may be sure and wrong. So an estimate is
given only for causes that were tried, at sizes that were tried, and only where the model's own figures moved as they
did then.
"""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.diagnosis.effects import Z_95, Effect
from equipoise.drift.diagnosis.root_cause import MOSTLY_EXPLAINED_SHARE, Cause
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.type_aliases import FloatArray

MAX_LOG_ODDS_DIFFERENCE = 0.35  # standard deviations by which log odds may differ from what they were when it was tried
LOSS_ERROR_SHARE = 0.15  # share of a loss by which it was off on pictures of changes tried apart
LOG_ODDS_INDEX = CHARTED_FEATURES.index("log odds")


@dataclass(frozen=True)
class AccuracyEstimate:
    """An accuracy, between bounds that hold in 19 of 20 cases."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of what lies between the bounds."""
        return (self.high - self.low) / 2


def reference_accuracy(profile: ReferenceProfile) -> AccuracyEstimate:
    """On the reference."""
    labelled = profile.labelled
    return wilson_interval(float(labelled.prior @ np.diag(labelled.confusion)), profile.baseline.usual.counts.sum())


def estimate_accuracy(window: Window, cause: Cause | None) -> AccuracyEstimate | None:
    """In a window with drift of a cause, or with none; None where nobody can know."""
    if cause is None:
        return reference_accuracy(window.profile)
    if cause.name == "label shift":
        return accuracy_under_label_shift(window)
    if not cause.effects or (len(cause.effects) > 1 and cause.effects[0].explained < MOSTLY_EXPLAINED_SHARE):
        return None  # how several changes add up was never tried
    if not matches_signature(window, cause.effects[0]):
        return None
    return accuracy_from_signature(window.profile, cause.effects[0])


def matches_signature(window: Window, effect: Effect) -> bool:
    """Whether the change lies among those tried, and the model is as sure as it was then."""
    known = window.profile.signatures
    rows = np.flatnonzero(known.kind == effect.kind)
    if effect.place >= len(rows) and len(rows) > 1:  # it may be larger still
        return False
    odds = interpolate_response(known.scores[rows, LOG_ODDS_INDEX], 0.0, effect.place)
    return bool(
        abs(float(window.scores[LOG_ODDS_INDEX]) - odds)
        < MAX_LOG_ODDS_DIFFERENCE + Z_95 / np.sqrt(window.effective_sample_size)
    )


def accuracy_from_signature(profile: ReferenceProfile, effect: Effect) -> AccuracyEstimate:
    """The accuracy that the same change left when it was tried; the part that the cause explains is not all."""
    found = profile.signatures
    rows = np.flatnonzero(found.kind == effect.kind)
    clean, sizes = float(found.clean[0]), np.concatenate([found.none[effect.kind : effect.kind + 1], found.size[rows]])
    order = np.argsort(sizes)
    values = np.concatenate([[clean], found.accuracy[rows]])
    at, *ends = (
        float(np.interp(size, sizes[order], values[order])) for size in (effect.value, effect.low, effect.high)
    )
    spread = LOSS_ERROR_SHARE * abs(clean - at) + wilson_interval(at, float(found.tried)).half_width
    return AccuracyEstimate(at, max(min(at, *ends) - spread, 0), min(max(at, *ends) + spread, 1))


def interpolate_response(values: FloatArray, neutral_value: float, position: float) -> float:
    """A value along a kind of change."""
    line = np.concatenate([[neutral_value], values])
    return float(np.interp(position, np.arange(len(line)), line))


def accuracy_under_label_shift(window: Window) -> AccuracyEstimate:
    """With other shares of the classes, each of which is told as well as ever."""
    labelled, share = window.profile.labelled, window.counts / max(window.image_count, 1)
    right = np.diag(labelled.confusion) * labelled.prior
    called = labelled.confusion @ labelled.prior
    precision = np.where(called > 0, right / np.maximum(called, 1e-12), 1)
    return wilson_interval(float(share @ precision), window.effective_sample_size)


def wilson_interval(share: float, image_count: float) -> AccuracyEstimate:
    """A share of so many, with Wilson's bounds."""
    square = Z_95**2 / max(image_count, 1)
    middle = (share + square / 2) / (1 + square)
    reach = Z_95 * np.sqrt(share * (1 - share) / max(image_count, 1) + square / max(image_count, 1) / 4) / (1 + square)
    return AccuracyEstimate(share, float(middle - reach), float(middle + reach))
