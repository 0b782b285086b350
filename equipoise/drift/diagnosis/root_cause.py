"""Name the cause of a drift from how the charted features of a window have moved; of images, a corruption."""

from dataclasses import dataclass, replace

import numpy as np

from equipoise.drift.diagnosis.cause import Cause, is_significant, remove_label_shift
from equipoise.drift.diagnosis.effects import (
    MIN_EXPLAINED_SHARE,
    Effect,
    FeatureShift,
    rank_effects,
    subtract_effect,
)
from equipoise.drift.diagnosis.moved_statistics import diagnose_statistics
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.features.statistic_schema import DISTANCE_COLUMN, KINDS_OF_IMAGES, OUTLIER_COLUMN
from equipoise.formatting import format_number, format_share

MAX_CAUSES = 3  # causes named at once
MIN_FURTHER_SHARE = 0.02  # share of a shift that a further cause must account for: less may as well be chance
MIN_RESIDUAL_SHARE = 0.2  # share of a shift that must be left for a further cause to be named
CLOSE_RUNNER_UP_RATIO = 0.8  # of the share of the cause named last: a runner-up with more is mentioned in the reason
MOSTLY_EXPLAINED_SHARE = 0.8  # share of a shift: causes that explain as much leave nothing for a new class to explain
OUTLIER_SHARE_RANGE = (0.02, 0.6)  # share of outlier images at which a new class is considered
MAX_DISTANCE_PER_OUTLIER_SHARE = 8.0  # mean distance over the share of outliers, for a new class: the rest is as usual
MIN_SURPLUS_DISTANCE = 0.15  # standard deviations by which features must be farther off than the causes explain
MIN_SURPLUS_SHARE = 1 / 3  # share of the mean distance that the causes must leave unexplained


@dataclass(frozen=True, eq=False)
class ShiftExplanation:
    """Corruptions that explain a shift, one after another."""

    effects: tuple[Effect, ...]
    residual: FeatureShift
    """shift that is left"""
    runner_up: Effect | None
    """corruption of another cause that would explain most in place of the last effect"""


def diagnose_window(window: Window, classes_moved: bool) -> Cause:
    """Return the most likely cause; `classes_moved` says whether a chart of predicted classes is over its threshold.

    The causes of a drift of images are corruptions; in rows and texts, the statistics themselves are the causes, and of
    a detector too where no corruption explains the drift.
    """
    schema = window.profile.schema
    if schema.kind not in KINDS_OF_IMAGES:
        return diagnose_statistics(window, classes_moved)
    explanation = explain_greedily(window)
    effects, residual = explanation.effects, explanation.residual
    explained = explained_share(window.feature_shift(), residual, window.feature_shift())
    if explained < MOSTLY_EXPLAINED_SHARE and has_outlier_subset(window) and has_unexplained_distance(window, residual):
        share = outlier_share(window)
        return Cause("new class", f"{share:.0%} of the images are unlike anything in the reference, the rest as usual")
    if effects:
        why = f"{describe_effects(effects)} of how the images differ from the reference"
        why += describe_close_runner_up(explanation)
        return Cause(effects[0].cause, why, effects, explanation.runner_up)
    if schema.kind == "boxes":  # what is found has changed by itself
        return diagnose_statistics(window, classes_moved)
    if classes_moved and not is_significant(remove_label_shift(window)):
        return Cause("label shift", "the shares of the classes have changed; the images of each class look as before")
    return Cause("features", "no known cause explains how the images differ from the reference")


def explain_greedily(window: Window) -> ShiftExplanation:
    """Name causes that explain the shift, one after another."""
    total = window.feature_shift()
    explanation = ShiftExplanation((), total, None)
    while is_significant(window) and len(explanation.effects) < MAX_CAUSES:
        residual, named = explanation.residual, explanation.effects
        if named and weighted_squared_norm(residual) <= MIN_RESIDUAL_SHARE**2 * weighted_squared_norm(total):
            break
        ranked = rank_effects(residual, window.profile.signatures)
        candidates = [effect for effect in ranked if effect.kind not in [other.kind for other in named]]
        best = candidates[0]
        if best.explained < MIN_EXPLAINED_SHARE or (best.cause == "features" and named):
            break
        best = share_of_total(window, residual, best)
        if named and best.explained < MIN_FURTHER_SHARE:
            break
        others = (effect for effect in candidates if effect.cause not in (best.cause, "features"))
        runner_up = next(others, None)
        explanation = ShiftExplanation(
            (*named, best),
            subtract_effect(residual, window.profile.signatures, best),
            share_of_total(window, residual, runner_up) if runner_up else None,
        )
    return explanation


def share_of_total(window: Window, residual: FeatureShift, effect: Effect) -> Effect:
    """Return an effect with the share that it accounts for of the window's whole shift, where `residual` was left."""
    left = subtract_effect(residual, window.profile.signatures, effect)
    return replace(effect, explained=explained_share(residual, left, window.feature_shift()))


def weighted_squared_norm(feature_shift: FeatureShift) -> float:
    """Return the squared length of a shift, each feature weighted as in the diagnosis."""
    return float((feature_shift.weighted_scores**2).sum())


def explained_share(before: FeatureShift, after: FeatureShift, total: FeatureShift) -> float:
    """Return the share of the squared length of the total shift by which one shift is longer than the next."""
    return (weighted_squared_norm(before) - weighted_squared_norm(after)) / max(weighted_squared_norm(total), 1e-12)


def describe_close_runner_up(explanation: ShiftExplanation) -> str:
    """Describe the runner-up if it explains nearly as much as the cause named last; an empty string if it does not."""
    runner_up = explanation.runner_up
    if runner_up is None or runner_up.explained < CLOSE_RUNNER_UP_RATIO * explanation.effects[-1].explained:
        return ""
    size = describe_size(runner_up)
    return f" ({runner_up.cause} {size} in its place would explain {format_share(runner_up.explained)})"


def describe_size(effect: Effect) -> str:
    """Describe the direction and size of an effect."""
    return " ".join(part for part in (effect.detail, f"{format_number(effect.value)} {effect.unit}") if part)


def describe_effects(effects: tuple[Effect, ...]) -> str:
    """Describe effects and what each explains; the first without its cause, which the verdict names before it."""
    parts = [describe_size(effect) for effect in effects]
    further = [
        f", {effect.cause} {part} explains a further {format_share(effect.explained)}"
        for effect, part in zip(effects[1:], parts[1:], strict=True)
    ]
    return "".join([f"{parts[0]} explains {format_share(effects[0].explained)}", *further])


def has_unexplained_distance(window: Window, residual: FeatureShift) -> bool:
    """Return whether the features are farther from those of the reference than the causes explain."""
    distance, surplus = float(window.scores[DISTANCE_COLUMN]), float(residual.scores[DISTANCE_COLUMN])
    return bool(
        surplus > max(MIN_SURPLUS_DISTANCE + 3 / np.sqrt(window.effective_sample_size), MIN_SURPLUS_SHARE * distance)
    )


def outlier_share(window: Window) -> float:
    """Return the share of images whose features are unlike those of any reference image."""
    shares = window.counts / max(window.image_count, 1)
    return float(window.shifts[OUTLIER_COLUMN] + shares @ window.profile.baseline.usual.mean[:, OUTLIER_COLUMN])


def has_outlier_subset(window: Window) -> bool:
    """Return whether some images are far from the reference and the others as usual, as with a new class."""
    share, distance = outlier_share(window), float(window.scores[DISTANCE_COLUMN])
    low, high = OUTLIER_SHARE_RANGE
    return low < share < high and 0 < distance < MAX_DISTANCE_PER_OUTLIER_SHARE * share
