"""What a stretch of requests adds up to, and where in a watch it begins."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import FIGURES
from equipoise.drift.charts.sums import Sums
from equipoise.drift.detector import SCORES, Watch, chart_name
from equipoise.drift.diagnosis.effects import Moved, weights
from equipoise.drift.reference.profile import Known

Array = NDArray[Any]

LOOKS = 3  # times that the beginning is looked for, each with a better idea of what changed


@dataclass(frozen=True, eq=False)
class Window:
    """Some pictures in a row."""

    known: Known
    counts: Array
    """(classes,)"""
    scores: Array
    """(figures,) means"""
    shifts: Array

    @property
    def pictures(self) -> float:
        """How many."""
        return float(self.counts.sum())

    @property
    def worth(self) -> float:
        """Pictures that would tell as much, were the reference without error: it is less sure of each class alone."""
        total = max(self.pictures, 1)
        known = np.maximum(self.known.baseline.usual.counts, 1)
        return float(1 / (1 / total + ((self.counts / total) ** 2 / known).sum()))

    @property
    def scale(self) -> Array:
        """(figures,) what a standard deviation is among these classes."""
        share = self.counts / max(self.pictures, 1)
        return np.sqrt(share @ self.known.baseline.usual.scale**2)

    def moved(self) -> Moved:
        """For a diagnosis."""
        return Moved(self.worth, self.scores, self.shifts, self.scale)


def window(known: Known, row: Sums) -> Window:
    """Of the sums over its pictures."""
    layout = known.baseline.layout
    counts = layout.read(row, "classes")
    total = max(counts.sum(), 1)
    return Window(known, counts, layout.read(row, "scores") / total, layout.read(row, "shifts") / total)


def latest(watch: Watch, first: int) -> Window:
    """From one of the steps that a watch remembers to its end."""
    return window(watch.known, watch.rows[first:].sum(0))


def since(watch: Watch) -> int:
    """The step with which the change began that a watch alarms of: not before an earlier alarm was over.

    A class that stays away: when its chart was last at nothing. Otherwise the step from which on the figures differ
    most from nothing, along the direction in which they differ.
    """
    if watch.alarm is None:
        return 0
    chart = watch.alarm.chart
    if chart >= SCORES and chart_name(chart).startswith("class"):
        return int(np.searchsorted(watch.ends, watch.zero[class_place(watch, chart)], "right"))
    start = min(int(np.searchsorted(watch.ends, watch.over, "right")), len(watch.ends) - 1)
    scores = watch.known.baseline.layout.read(watch.rows[start:], "scores")
    sizes = watch.known.baseline.layout.read(watch.rows[start:], "classes").sum(1)
    zero = watch.zero[chart] if chart < SCORES else max(watch.alarm.pictures - 128, 0)
    first = min(max(int(np.searchsorted(watch.ends, zero, "right")) - start, 0), len(sizes) - 1)
    for _ in range(LOOKS):
        first = turning(scores, sizes, first)
    return start + first


def class_place(watch: Watch, chart: int) -> int:
    """Which of the sums of classes is highest, as a place among those of all charts."""
    side = chart - SCORES
    classes = watch.charts.classes.shape[2]
    return SCORES + int(side * classes + watch.charts.classes[0, side].argmax())


def turning(scores: Array, sizes: Array, first: int) -> int:
    """The step from which on scores lie farthest along their mean from `first` on."""
    aim = scores[first:].sum(0) * (weights() + TELLING)
    along = scores @ (aim / max(float(np.linalg.norm(aim)), 1e-12))
    sums, counts = np.cumsum(along[::-1])[::-1], np.cumsum(sizes[::-1])[::-1]
    heights: Array = np.maximum(sums, 0) ** 2 / counts
    return int(np.argmax(heights))


TELLING = np.isin(FIGURES, ("distance", "strange", "log odds")).astype(float)
"""figures of the model that move where those of the picture do not: something new is seen"""
