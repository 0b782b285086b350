"""Which cause explains how the charts moved, and how much of it: the nearest signature."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.features.image_stats import GLOBAL_STATISTICS, STATISTIC_NAMES
from equipoise.drift.reference.signatures import Signatures
from equipoise.type_aliases import FloatArray

MIN_EXPLAINED_SHARE = 0.5  # of the squared movement of charts, that a cause must explain to be named
CELL_WEIGHT = 0.5  # of a cell's score: there are many, and they move together
DIRECTLY_MEASURED_CAUSES = {
    "colour temperature": CHARTED_FEATURES.index("red over blue"),
    "tint": CHARTED_FEATURES.index("green"),
    "exposure": CHARTED_FEATURES.index("luminance"),
}
"""causes whose size one figure says by itself"""
GRAIN_WEIGHT = 0.4  # of roughness: whether grain follows the light or not differs by camera
Z_95 = 1.96  # standard errors either way of an interval


@dataclass(frozen=True)
class Effect:
    """A cause, and how much of it."""

    cause: str
    detail: str
    unit: str
    value: float
    low: float
    high: float
    explained: float
    """share of the charts' movement that it accounts for"""
    kind: int
    """which of the signatures', to look up what else it does"""
    place: float
    """how far along them; 0 is no change, 1 the first that was tried"""


def feature_weights() -> NDArray[np.float64]:
    """How much each figure counts: those of the picture, not those of the model, which follow."""
    found = np.zeros(len(CHARTED_FEATURES))
    found[: len(GLOBAL_STATISTICS)], found[len(GLOBAL_STATISTICS) : len(STATISTIC_NAMES)] = 1, CELL_WEIGHT
    found[CHARTED_FEATURES.index("roughness")] = GRAIN_WEIGHT
    return found


def rank_effects(feature_shift: "FeatureShift", signatures: Signatures) -> list[Effect]:
    """All kinds of change, the one that explains most first."""
    found = [fit_effect(feature_shift, signatures, kind) for kind in range(len(signatures.names))]
    return sorted(found, key=lambda one: -one.explained)


def subtract_effect(feature_shift: "FeatureShift", signatures: Signatures, effect: Effect) -> "FeatureShift":
    """What is left to explain once a cause has been named."""
    rows = np.flatnonzero(signatures.kind == effect.kind)
    scores, shifts = (
        point_on_path(prepend_zero_row(table[rows]), effect.place) for table in (signatures.scores, signatures.shifts)
    )
    return FeatureShift(
        feature_shift.effective_sample_size,
        feature_shift.scores - scores,
        feature_shift.shifts - shifts,
        feature_shift.scale,
    )


def point_on_path(path: FloatArray, position: float) -> FloatArray:
    """The point of a path at a place."""
    low = min(int(position), len(path) - 2)
    return np.asarray(path[low] + (position - low) * (path[low + 1] - path[low]))


@dataclass(frozen=True, eq=False)
class FeatureShift:
    """How some pictures differ from what is usual, on average."""

    effective_sample_size: float
    scores: FloatArray
    """(figures,) in standard deviations, clipped"""
    shifts: FloatArray
    """in each figure's own units"""
    scale: FloatArray
    """what a standard deviation is"""


def fit_effect(feature_shift: FeatureShift, signatures: Signatures, kind: int) -> Effect:
    """How much one kind of change explains, and at which size."""
    rows = np.flatnonzero(signatures.kind == kind)
    aim, path = feature_shift.scores * feature_weights(), prepend_zero_row(signatures.scores[rows]) * feature_weights()
    place, missed, step = project_on_path(aim, path)
    error = 1 / np.sqrt(step * max(feature_shift.effective_sample_size, 1))  # scores have a standard deviation of one
    cause, detail, unit = (str(one) for one in signatures.names[kind])
    if (figure := DIRECTLY_MEASURED_CAUSES.get(cause)) is not None:
        line = prepend_zero_row(signatures.shifts[rows])[:, figure]
        place, error = invert_line(
            line,
            feature_shift.shifts[figure],
            feature_shift.scale[figure] / np.sqrt(max(feature_shift.effective_sample_size, 1)),
        )
    sizes = np.concatenate([signatures.none[kind : kind + 1], signatures.size[rows]])
    value, low, high = np.interp([place, place - Z_95 * error, place + Z_95 * error], np.arange(len(sizes)), sizes)
    share = 1 - missed / max((aim**2).sum(), 1e-12)
    return Effect(
        cause,
        detail,
        unit,
        float(value),
        float(min(low, high)),
        float(max(low, high)),
        float(share),
        kind,
        float(place),
    )


def prepend_zero_row(rows: FloatArray) -> FloatArray:
    """The rows of a kind of change, after one of zeros."""
    return np.concatenate([np.zeros((1, rows.shape[1])), rows])


def project_on_path(target: FloatArray, path: FloatArray) -> tuple[float, float, float]:
    """The place on a path of straight pieces, how far it is from the aim, and the square of a piece's length there."""
    steps = np.diff(path, axis=0)
    lengths = np.maximum((steps**2).sum(1), 1e-12)
    share = np.clip(((target - path[:-1]) * steps).sum(1) / lengths, 0, 1)
    missed = ((path[:-1] + share[:, None] * steps - target) ** 2).sum(1)
    best = int(missed.argmin())
    return best + float(share[best]), float(missed[best]), float(lengths[best])


def invert_line(line: FloatArray, value: float, error: float) -> tuple[float, float]:
    """The place on a line that rises or falls, at which it has a value; and the place's own error."""
    sign = np.sign(line[-1]) or 1.0
    rising = np.maximum.accumulate(sign * line)
    place = float(np.interp(sign * value, rising, np.arange(len(line))))
    slope = np.diff(rising)[min(int(place), len(line) - 2)]
    return place, error / max(float(slope), 1e-9)
