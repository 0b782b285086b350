"""What a stretch of requests adds up to, and where in a watch it begins."""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.charts.sums import FixedPointSums
from equipoise.drift.detector import SCORE_CHART_COUNT, StreamDetector, chart_name
from equipoise.drift.diagnosis.effects import FeatureShift, feature_weights
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.type_aliases import FloatArray

CHANGE_SEARCH_ROUNDS = 3  # times that the beginning is looked for, each with a better idea of what changed


@dataclass(frozen=True, eq=False)
class Window:
    """Some pictures in a row."""

    profile: ReferenceProfile
    counts: FloatArray
    """(classes,)"""
    scores: FloatArray
    """(figures,) means"""
    shifts: FloatArray

    @property
    def image_count(self) -> float:
        """How many."""
        return float(self.counts.sum())

    @property
    def effective_sample_size(self) -> float:
        """Pictures that would tell as much, were the reference without error: it is less sure of each class alone."""
        total = max(self.image_count, 1)
        known = np.maximum(self.profile.baseline.usual.counts, 1)
        return float(1 / (1 / total + ((self.counts / total) ** 2 / known).sum()))

    @property
    def scale(self) -> FloatArray:
        """(figures,) what a standard deviation is among these classes."""
        share = self.counts / max(self.image_count, 1)
        return np.sqrt(share @ self.profile.baseline.usual.scale**2)

    def feature_shift(self) -> FeatureShift:
        """For a diagnosis."""
        return FeatureShift(self.effective_sample_size, self.scores, self.shifts, self.scale)


def window_from_sums(profile: ReferenceProfile, sums: FixedPointSums) -> Window:
    """Of the sums over its pictures."""
    layout = profile.baseline.layout
    counts = layout.read_part(sums, "classes")
    total = max(counts.sum(), 1)
    return Window(profile, counts, layout.read_part(sums, "scores") / total, layout.read_part(sums, "shifts") / total)


def window_since(detector: StreamDetector, first_step: int) -> Window:
    """From one of the steps that a watch remembers to its end."""
    return window_from_sums(detector.profile, detector.rows[first_step:].sum(0))


def find_change_step(detector: StreamDetector) -> int:
    """The step with which the change began that a watch alarms of: not before an earlier alarm was over.

    A class that stays away: when its chart was last at nothing. Otherwise the step from which on the figures differ
    most from nothing, along the direction in which they differ.
    """
    if detector.alarm is None:
        return 0
    chart = detector.alarm.chart_index
    if chart >= SCORE_CHART_COUNT and chart_name(chart).startswith("class"):
        return int(np.searchsorted(detector.ends, detector.zero[highest_class_index(detector, chart)], "right"))
    start = min(int(np.searchsorted(detector.ends, detector.over, "right")), len(detector.ends) - 1)
    scores = detector.profile.baseline.layout.read_part(detector.rows[start:], "scores")
    sizes = detector.profile.baseline.layout.read_part(detector.rows[start:], "classes").sum(1)
    zero = detector.zero[chart] if chart < SCORE_CHART_COUNT else max(detector.alarm.observed_images - 128, 0)
    first = min(max(int(np.searchsorted(detector.ends, zero, "right")) - start, 0), len(sizes) - 1)
    for _ in range(CHANGE_SEARCH_ROUNDS):
        first = most_likely_change_step(scores, sizes, first)
    return start + first


def highest_class_index(detector: StreamDetector, chart_index: int) -> int:
    """Which of the sums of classes is highest, as a place among those of all charts."""
    side = chart_index - SCORE_CHART_COUNT
    classes = detector.charts.classes.shape[2]
    return SCORE_CHART_COUNT + int(side * classes + detector.charts.classes[0, side].argmax())


def most_likely_change_step(scores: FloatArray, step_sizes: FloatArray, first_step: int) -> int:
    """The step from which on scores lie farthest along their mean from `first` on."""
    aim = scores[first_step:].sum(0) * (feature_weights() + MODEL_FEATURE_WEIGHTS)
    along = scores @ (aim / max(float(np.linalg.norm(aim)), 1e-12))
    sums, counts = np.cumsum(along[::-1])[::-1], np.cumsum(step_sizes[::-1])[::-1]
    heights: FloatArray = np.maximum(sums, 0) ** 2 / counts
    return int(np.argmax(heights))


MODEL_FEATURE_WEIGHTS = np.isin(CHARTED_FEATURES, ("distance", "strange", "log odds")).astype(float)
"""figures of the model that move where those of the picture do not: something new is seen"""
