"""What changed, by name: from how a window's figures moved to one of the causes there are."""

from dataclasses import dataclass

import numpy as np

from equipoise.drift.charts.baseline import CHARTED_FEATURES
from equipoise.drift.diagnosis.effects import (
    MIN_EXPLAINED_SHARE,
    Effect,
    FeatureShift,
    feature_weights,
    rank_effects,
    subtract_effect,
)
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.stats.label_shift import estimate_label_shift
from equipoise.formatting import format_number

MIN_SIGNIFICANT_Z = 4.5  # standard errors of a mean score that are no chance among all figures
MAX_CAUSES = 3  # causes at once
MIN_RESIDUAL_SHARE = 0.2  # of a movement, that is worth naming a further cause for
MOSTLY_EXPLAINED_SHARE = 0.8  # of a movement: causes that explain so much leave nothing for a new class to explain
OUTLIER_SHARE_RANGE = (0.02, 0.6)  # of pictures that are strange: at least, at most, for a new class
MAX_DISTANCE_PER_OUTLIER_SHARE = (
    8.0  # mean distance over the share of strange ones, at most: these are far, the others as ever
)
MIN_SURPLUS_DISTANCE = 0.15  # of a standard deviation by which features are farther off than causes explain
MIN_SURPLUS_SHARE = 1 / 3  # of how much farther off they are
DISTANCE_INDEX, OUTLIER_INDEX = CHARTED_FEATURES.index("distance"), CHARTED_FEATURES.index("strange")


@dataclass(frozen=True)
class Cause:
    """What a window's drift comes from."""

    name: str
    why: str
    effects: tuple[Effect, ...] = ()
    """of the picture: the one that explains most first"""


def diagnose_window(window: Window, classes_moved: bool) -> Cause:
    """The most likely one; `classes_moved` says whether a chart of predicted classes is too high."""
    found, left = explain_greedily(window)
    explained = 1 - weighted_squared_norm(left) / max(weighted_squared_norm(window.feature_shift()), 1e-12)
    if explained < MOSTLY_EXPLAINED_SHARE and has_outlier_subset(window) and has_unexplained_distance(window, left):
        share = outlier_share(window)
        return Cause("new class", f"{share:.0%} of the pictures are like nothing in the reference, the others as ever")
    if found:
        return Cause(
            found[0].cause, f"{describe_effects(found)} explains {explained:.0%} of how pictures differ", found
        )
    if classes_moved and not is_significant(remove_label_shift(window)):
        return Cause("label shift", "classes come in other shares; pictures of each class look as they did")
    return Cause("features", "no known cause explains how pictures differ")


def explain_greedily(window: Window) -> tuple[tuple[Effect, ...], FeatureShift]:
    """Causes that explain the movement, one after the other, and what is left."""
    left = window.feature_shift()
    found: list[Effect] = []
    whole = weighted_squared_norm(left)
    while (
        is_significant(window)
        and len(found) < MAX_CAUSES
        and weighted_squared_norm(left) > (MIN_RESIDUAL_SHARE**2 if found else 0) * whole
    ):
        best = next(
            one for one in rank_effects(left, window.profile.signatures) if one.kind not in [of.kind for of in found]
        )
        if best.explained < MIN_EXPLAINED_SHARE or (best.cause == "features" and found):
            break
        found.append(best)
        left = subtract_effect(left, window.profile.signatures, best)
    return tuple(found), left


def weighted_squared_norm(feature_shift: FeatureShift) -> float:
    """The square of a movement's length, by what counts for a diagnosis."""
    return float(((feature_shift.scores * feature_weights()) ** 2).sum())


def describe_effects(effects: tuple[Effect, ...]) -> str:
    """Effects in words: the first without its name, which is said already."""
    parts = [
        " ".join(part for part in (one.detail, f"{format_number(one.value)} {one.unit}") if part) for one in effects
    ]
    names = ["", *(f"{one.cause} " for one in effects[1:])]
    return " and ".join(f"{name}{part}" for name, part in zip(names, parts, strict=True))


def has_unexplained_distance(window: Window, residual: FeatureShift) -> bool:
    """Whether features are farther off than the causes explain."""
    distance, beyond = float(window.scores[DISTANCE_INDEX]), float(residual.scores[DISTANCE_INDEX])
    return bool(
        beyond > max(MIN_SURPLUS_DISTANCE + 3 / np.sqrt(window.effective_sample_size), MIN_SURPLUS_SHARE * distance)
    )


def is_significant(window: Window) -> bool:
    """Whether any figure's mean is off by more than chance."""
    return bool(np.abs(window.scores).max() * np.sqrt(window.effective_sample_size) > MIN_SIGNIFICANT_Z)


def outlier_share(window: Window) -> float:
    """Share of pictures whose features are unlike any of the reference."""
    shares = window.counts / max(window.image_count, 1)
    return float(window.shifts[OUTLIER_INDEX] + shares @ window.profile.baseline.usual.mean[:, OUTLIER_INDEX])


def has_outlier_subset(window: Window) -> bool:
    """Whether some pictures are far off and the others as ever: something new among the old."""
    share, distance = outlier_share(window), float(window.scores[DISTANCE_INDEX])
    low, high = OUTLIER_SHARE_RANGE
    return low < share < high and 0 < distance < MAX_DISTANCE_PER_OUTLIER_SHARE * share


def remove_label_shift(window: Window) -> Window:
    """The same, less what other shares of classes explain: pictures that the model errs on come oftener, or less."""
    labelled = window.profile.labelled
    solved = estimate_label_shift(labelled.confusion, np.maximum(labelled.prior, 1e-6), window.counts)
    mix = solved.weights * labelled.prior
    mix = mix / max(mix.sum(), 1e-12)
    return Window(window.profile, window.counts, window.scores - mix @ labelled.scores, window.shifts)
