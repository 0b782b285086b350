"""Cause of a drift, and whether a window differs from the reference by more than chance and new class shares."""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.diagnosis.effects import Effect
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.stats.label_shift import estimate_label_shift

MIN_SIGNIFICANT_Z = 4.5  # standard errors beyond which the largest mean score of all features is no chance


@dataclass(frozen=True)
class Cause:
    """Cause of a window's drift, with the reason for naming it."""

    name: str
    why: str
    effects: tuple[Effect, ...] = ()
    """what has moved, the one that explains most first: corruptions of an image, columns of a table"""
    runner_up: Effect | None = None
    """best corruption of another cause in place of the last one; None without effects"""
    is_sentence: bool = False
    """whether the reason is a sentence that names the cause itself"""

    @property
    def explanation(self) -> str:
        """Cause and reason in words."""
        return self.why if self.is_sentence else f"{self.name}: {self.why}"


def is_significant(window: Window) -> bool:
    """Return whether the mean of any charted feature has moved by more than chance."""
    return bool(np.abs(window.scores).max() * np.sqrt(window.effective_sample_size) > MIN_SIGNIFICANT_Z)


def remove_label_shift(window: Window) -> Window:
    """Return the window without the part of its scores that follows from new class shares.

    Scores are relative to the predicted class, so a class that the model often gets wrong moves them by its share.
    """
    labelled = window.profile.labelled
    shift = estimate_label_shift(labelled.confusion, np.maximum(labelled.prior, 1e-6), window.class_counts)
    shares = shift.weights * labelled.prior
    shares = shares / max(shares.sum(), 1e-12)
    return Window(window.profile, window.counts, window.scores - shares @ labelled.scores, window.shifts)
