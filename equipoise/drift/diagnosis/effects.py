"""Find the corruption, and its size, whose signature is nearest to how the charted features have moved."""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.statistic_schema import StatisticSchema
from equipoise.drift.reference.signatures import Signatures
from equipoise.proportions import Z_95
from equipoise.type_aliases import FloatArray

MIN_EXPLAINED_SHARE = 0.5  # share of the squared shift that a cause must explain to be named
DIRECTLY_MEASURED_CAUSES = {
    "colour temperature": "red over blue",
    "tint": "green",
    "exposure": "luminance",
}
"""causes whose size follows from one charted feature alone"""


@dataclass(frozen=True)
class Effect:
    """One cause of a shift, and its size with a 95 % interval."""

    cause: str
    detail: str
    unit: str
    value: float
    low: float
    high: float
    explained: float
    """share of the squared shift that it accounts for; once causes are named, of the whole shift beside the others"""
    kind: int
    """index of the corruption in the signatures"""
    place: float
    """position along the sizes tried, between two of them if fractional: 0 is no change, 1 the first size"""


def rank_effects(feature_shift: "FeatureShift", signatures: Signatures) -> list[Effect]:
    """Fit every corruption to a shift, sorted by the share that it explains, largest first."""
    effects = [fit_effect(feature_shift, signatures, kind) for kind in range(len(signatures.names))]
    return sorted(effects, key=lambda effect: -effect.explained)


def subtract_effect(feature_shift: "FeatureShift", signatures: Signatures, effect: Effect) -> "FeatureShift":
    """Return the shift that is left to explain once an effect has been subtracted."""
    rows = np.flatnonzero(signatures.kind == effect.kind)
    scores, shifts = (
        point_on_path(prepend_zero_row(table[rows]), effect.place) for table in (signatures.scores, signatures.shifts)
    )
    return FeatureShift(
        feature_shift.effective_sample_size,
        feature_shift.scores - scores,
        feature_shift.shifts - shifts,
        feature_shift.scale,
        feature_shift.schema,
    )


def point_on_path(path: FloatArray, position: float) -> FloatArray:
    """Return the point of a piecewise linear path at a fractional position."""
    low = min(int(position), len(path) - 2)
    return np.asarray(path[low] + (position - low) * (path[low + 1] - path[low]))


@dataclass(frozen=True, eq=False)
class FeatureShift:
    """Mean difference of some images from what is usual for their classes."""

    effective_sample_size: float
    scores: FloatArray
    """(features,) in standard deviations, clipped"""
    shifts: FloatArray
    """(features,) in each feature's own unit"""
    scale: FloatArray
    """(features,) one standard deviation in each feature's own unit"""
    schema: StatisticSchema = IMAGE_SCHEMA
    """charted features"""

    @property
    def weighted_scores(self) -> FloatArray:
        """Scores, each weighted as in the search for a cause, (features,)."""
        return np.asarray(self.scores * self.schema.cause_weights)


def fit_effect(feature_shift: FeatureShift, signatures: Signatures, kind: int) -> Effect:
    """Fit the size of one corruption to a shift, and measure how much of the shift it explains."""
    rows = np.flatnonzero(signatures.kind == kind)
    target = feature_shift.weighted_scores
    path = prepend_zero_row(signatures.scores[rows]) * feature_shift.schema.cause_weights
    position, missed, step = project_on_path(target, path)
    error = 1 / np.sqrt(step * max(feature_shift.effective_sample_size, 1))  # scores have a standard deviation of one
    cause, detail, unit = (str(word) for word in signatures.names[kind])
    if (name := DIRECTLY_MEASURED_CAUSES.get(cause)) is not None:
        feature_index = feature_shift.schema.names.index(name)
        line = prepend_zero_row(signatures.shifts[rows])[:, feature_index]
        position, error = invert_line(
            line,
            feature_shift.shifts[feature_index],
            feature_shift.scale[feature_index] / np.sqrt(max(feature_shift.effective_sample_size, 1)),
        )
    sizes = np.concatenate([signatures.none[kind : kind + 1], signatures.size[rows]])
    positions = [position, position - Z_95 * error, position + Z_95 * error]
    value, low, high = np.interp(positions, np.arange(len(sizes)), sizes)
    explained = 1 - missed / max((target**2).sum(), 1e-12)
    return Effect(
        cause,
        detail,
        unit,
        float(value),
        float(min(low, high)),
        float(max(low, high)),
        float(explained),
        kind,
        float(position),
    )


def prepend_zero_row(rows: FloatArray) -> FloatArray:
    """Return the responses to one corruption with a row of zeros, no change, before them."""
    return np.concatenate([np.zeros((1, rows.shape[1])), rows])


def project_on_path(target: FloatArray, path: FloatArray) -> tuple[float, float, float]:
    """Project a target on a piecewise linear path.

    Returns the fractional position, the squared distance to the target and the squared length of the segment there.
    """
    steps = np.diff(path, axis=0)
    lengths = np.maximum((steps**2).sum(1), 1e-12)
    share = np.clip(((target - path[:-1]) * steps).sum(1) / lengths, 0, 1)
    missed = ((path[:-1] + share[:, None] * steps - target) ** 2).sum(1)
    best = int(missed.argmin())
    return best + float(share[best]), float(missed[best]), float(lengths[best])


def invert_line(line: FloatArray, value: float, error: float) -> tuple[float, float]:
    """Return the position at which a monotonic line has a value, and the standard error of the position."""
    sign = np.sign(line[-1]) or 1.0
    rising = np.maximum.accumulate(sign * line)
    position = float(np.interp(sign * value, rising, np.arange(len(line))))
    slope = np.diff(rising)[min(int(position), len(line) - 2)]
    return position, error / max(float(slope), 1e-9)
