"""Sums over a stretch of requests, and the step of a stream at which a change began."""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.charts.sums import FixedPointSums, sum_over_classes, sum_over_conditions
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.effects import FeatureShift
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.type_aliases import FloatArray

CHANGE_SEARCH_ROUNDS = 3  # searches for the start of a change, each with a better estimate of its direction


@dataclass(frozen=True, eq=False)
class Window:
    """Counts and mean feature differences of consecutive images, each compared with the nearest known condition."""

    profile: ReferenceProfile
    counts: FloatArray
    """(cells,) images by condition and predicted class"""
    scores: FloatArray
    """(features,) mean differences in standard deviations, clipped"""
    shifts: FloatArray
    """(features,) mean differences in each feature's own unit"""

    @property
    def image_count(self) -> float:
        """Number of images in the window."""
        return float(self.counts.sum())

    @property
    def class_counts(self) -> FloatArray:
        """Number of images by predicted class, (classes,)."""
        return sum_over_conditions(self.counts, len(self.profile.class_names))

    @property
    def reference_class_counts(self) -> FloatArray:
        """Number of reference images by predicted class, as many as there are in the window's mix of conditions."""
        class_count = len(self.profile.class_names)
        reference = self.profile.baseline.usual.counts.reshape(-1, class_count)
        if len(reference) == 1:
            return np.asarray(reference[0])
        counts, reference_counts = sum_over_classes(self.counts, class_count), reference.sum(1)
        shown = counts > 0
        weights = counts / reference_counts * (reference_counts[shown] / counts[shown]).min(initial=np.inf)
        return np.asarray(np.where(shown, weights, 0) @ reference)

    @property
    def condition_shares(self) -> dict[str, float]:
        """Share of the images in each condition, by name."""
        return self.profile.share_by_name(sum_over_classes(self.counts, len(self.profile.class_names)))

    @property
    def effective_sample_size(self) -> float:
        """Number of images that would tell as much if the reference's mean of each cell were exact."""
        total = max(self.image_count, 1)
        reference_counts = np.maximum(self.profile.baseline.usual.counts, 1)
        return float(1 / (1 / total + ((self.counts / total) ** 2 / reference_counts).sum()))

    @property
    def scale(self) -> FloatArray:
        """Standard deviation of each feature among the cells of the window, (features,)."""
        share = self.counts / max(self.image_count, 1)
        return np.sqrt(share @ self.profile.baseline.usual.scale**2)

    def feature_shift(self) -> FeatureShift:
        """Return the mean feature differences that a diagnosis explains."""
        return FeatureShift(self.effective_sample_size, self.scores, self.shifts, self.scale, self.profile.schema)


def window_from_sums(profile: ReferenceProfile, sums: FixedPointSums) -> Window:
    """Build a window from the sums over its images."""
    layout = profile.baseline.layout
    counts = layout.read_part(sums, "cells")
    total = max(counts.sum(), 1)
    return Window(profile, counts, layout.read_part(sums, "scores") / total, layout.read_part(sums, "shifts") / total)


def window_since(detector: StreamDetector, first_step: int) -> Window:
    """Build a window from one of the steps that a detector remembers to the latest."""
    return window_from_sums(detector.profile, detector.rows[first_step:].sum(0))


def find_change_step(detector: StreamDetector) -> int:
    """Return the index of the step at which the change behind an alarm began, not before an earlier alarm ended.

    For a chart of classes: the step after which the chart was last at zero. Otherwise the step from which on the mean
    scores lie farthest from zero, along the direction in which they have moved.
    """
    if detector.alarm is None:
        return 0
    chart, names = detector.alarm.chart_index, detector.chart_names
    if chart >= names.score_chart_count and names.name_of(chart).startswith("class"):
        return int(np.searchsorted(detector.ends, detector.zero[highest_class_index(detector, chart)], "right"))
    start = min(int(np.searchsorted(detector.ends, detector.over, "right")), len(detector.ends) - 1)
    scores = detector.profile.baseline.layout.read_part(detector.rows[start:], "scores")
    sizes = detector.profile.baseline.layout.read_part(detector.rows[start:], "cells").sum(1)
    zero = detector.zero[chart] if chart < names.score_chart_count else max(detector.alarm.observed_images - 128, 0)
    first = min(max(int(np.searchsorted(detector.ends, zero, "right")) - start, 0), len(sizes) - 1)
    for _ in range(CHANGE_SEARCH_ROUNDS):
        first = most_likely_change_step(scores, sizes, first, detector.profile.schema.onset_weights)
    return start + first


def highest_class_index(detector: StreamDetector, chart_index: int) -> int:
    """Return the index, in `detector.zero`, of the class whose sum is highest in a chart of classes."""
    first = detector.chart_names.score_chart_count
    side = chart_index - first
    class_count = detector.charts.classes.shape[2]
    return first + int(side * class_count + detector.charts.classes[0, side].argmax())


def most_likely_change_step(scores: FloatArray, step_sizes: FloatArray, first_step: int, weights: FloatArray) -> int:
    """Return the step from which on scores lie farthest along the direction of their mean since `first_step`."""
    direction = scores[first_step:].sum(0) * weights
    along = scores @ (direction / max(float(np.linalg.norm(direction)), 1e-12))
    sums, counts = np.cumsum(along[::-1])[::-1], np.cumsum(step_sizes[::-1])[::-1]
    heights: FloatArray = np.maximum(sums, 0) ** 2 / counts
    return int(np.argmax(heights))
