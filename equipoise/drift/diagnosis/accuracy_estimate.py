"""What drift does to accuracy, without labels: known where the same change was tried on labelled pictures.

Confidence alone does not tell it: under a change that a model never met it may be sure and wrong. So an estimate is
given only for causes that were tried, at sizes that were tried, and only where the model's own figures moved as they
did then.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import FIGURES
from equipoise.drift.diagnosis.effects import SURE, Effect
from equipoise.drift.diagnosis.root_cause import MOSTLY, Cause
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.reference.profile import Known

Array = NDArray[Any]

ALIKE = 0.35  # standard deviations by which log odds may differ from what they were when it was tried
SPREAD = 0.15  # share of a loss by which it was off on pictures of changes tried apart
ODDS = FIGURES.index("log odds")


@dataclass(frozen=True)
class Estimate:
    """An accuracy, between bounds that hold in 19 of 20 cases."""

    value: float
    low: float
    high: float

    @property
    def reach(self) -> float:
        """Half of what lies between the bounds."""
        return (self.high - self.low) / 2


def usual_accuracy(known: Known) -> Estimate:
    """On the reference."""
    labelled = known.labelled
    return bounded(float(labelled.prior @ np.diag(labelled.confusion)), known.baseline.usual.counts.sum())


def accuracy(window: Window, cause: Cause | None) -> Estimate | None:
    """In a window with drift of a cause, or with none; None where nobody can know."""
    if cause is None:
        return usual_accuracy(window.known)
    if cause.name == "label shift":
        return mixed(window)
    if not cause.effects or (len(cause.effects) > 1 and cause.effects[0].explained < MOSTLY):
        return None  # how several changes add up was never tried
    if not alike(window, cause.effects[0]):
        return None
    return tried(window.known, cause.effects[0])


def alike(window: Window, effect: Effect) -> bool:
    """Whether the change lies among those tried, and the model is as sure as it was then."""
    known = window.known.signatures
    rows = np.flatnonzero(known.kind == effect.kind)
    if effect.place >= len(rows) and len(rows) > 1:  # it may be larger still
        return False
    odds = looked_up(known.scores[rows, ODDS], 0.0, effect.place)
    return bool(abs(float(window.scores[ODDS]) - odds) < ALIKE + SURE / np.sqrt(window.worth))


def tried(known: Known, effect: Effect) -> Estimate:
    """The accuracy that the same change left when it was tried; the part that the cause explains is not all."""
    found = known.signatures
    rows = np.flatnonzero(found.kind == effect.kind)
    clean, sizes = float(found.clean[0]), np.concatenate([found.none[effect.kind : effect.kind + 1], found.size[rows]])
    order = np.argsort(sizes)
    values = np.concatenate([[clean], found.accuracy[rows]])
    at, *ends = (
        float(np.interp(size, sizes[order], values[order])) for size in (effect.value, effect.low, effect.high)
    )
    spread = SPREAD * abs(clean - at) + bounded(at, float(found.tried)).reach
    return Estimate(at, max(min(at, *ends) - spread, 0), min(max(at, *ends) + spread, 1))


def looked_up(values: Array, none: float, place: float) -> float:
    """A value along a kind of change."""
    line = np.concatenate([[none], values])
    return float(np.interp(place, np.arange(len(line)), line))


def mixed(window: Window) -> Estimate:
    """With other shares of the classes, each of which is told as well as ever."""
    labelled, share = window.known.labelled, window.counts / max(window.pictures, 1)
    right = np.diag(labelled.confusion) * labelled.prior
    called = labelled.confusion @ labelled.prior
    precision = np.where(called > 0, right / np.maximum(called, 1e-12), 1)
    return bounded(float(share @ precision), window.worth)


def bounded(value: float, pictures: float) -> Estimate:
    """A share of so many, with Wilson's bounds."""
    square = SURE**2 / max(pictures, 1)
    middle = (value + square / 2) / (1 + square)
    reach = SURE * np.sqrt(value * (1 - value) / max(pictures, 1) + square / max(pictures, 1) / 4) / (1 + square)
    return Estimate(value, float(middle - reach), float(middle + reach))
