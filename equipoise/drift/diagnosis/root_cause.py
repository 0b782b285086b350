"""What changed, by name: from how a window's figures moved to one of the causes there are."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import FIGURES
from equipoise.drift.diagnosis.effects import ENOUGH, Effect, Moved, effects, weights, without
from equipoise.drift.diagnosis.window import Window
from equipoise.drift.stats import label_shift as shift
from equipoise.formatting import number

Array = NDArray[Any]

CERTAIN = 4.5  # standard errors of a mean score that are no chance among all figures
MOST = 3  # causes at once
LEFT = 0.2  # of a movement, that is worth naming a further cause for
MOSTLY = 0.8  # of a movement: causes that explain so much leave nothing for a new class to explain
STRANGE_SHARE = (0.02, 0.6)  # of pictures that are strange: at least, at most, for a new class
STRANGE_SCORE = 8.0  # mean distance over the share of strange ones, at most: these are far, the others as ever
SURPLUS = 0.15  # of a standard deviation by which features are farther off than causes explain
SURPLUS_SHARE = 1 / 3  # of how much farther off they are
DISTANCE, STRANGE = FIGURES.index("distance"), FIGURES.index("strange")


@dataclass(frozen=True)
class Cause:
    """What a window's drift comes from."""

    name: str
    why: str
    effects: tuple[Effect, ...] = ()
    """of the picture: the one that explains most first"""


def cause(window: Window, classes_moved: bool) -> Cause:
    """The most likely one; `classes_moved` says whether a chart of predicted classes is too high."""
    found, left = pursued(window)
    explained = 1 - weighed(left) / max(weighed(window.moved()), 1e-12)
    if explained < MOSTLY and strangers(window) and surplus(window, left):
        share = strange(window)
        return Cause("new class", f"{share:.0%} of the pictures are like nothing in the reference, the others as ever")
    if found:
        return Cause(found[0].cause, f"{worded(found)} explains {explained:.0%} of how pictures differ", found)
    if classes_moved and not certain(without_mix(window)):
        return Cause("label shift", "classes come in other shares; pictures of each class look as they did")
    return Cause("features", "no known cause explains how pictures differ")


def pursued(window: Window) -> tuple[tuple[Effect, ...], Moved]:
    """Causes that explain the movement, one after the other, and what is left."""
    left = window.moved()
    found: list[Effect] = []
    whole = weighed(left)
    while certain(window) and len(found) < MOST and weighed(left) > (LEFT**2 if found else 0) * whole:
        best = next(one for one in effects(left, window.known.signatures) if one.kind not in [of.kind for of in found])
        if best.explained < ENOUGH or (best.cause == "features" and found):
            break
        found.append(best)
        left = without(left, window.known.signatures, best)
    return tuple(found), left


def weighed(moved: Moved) -> float:
    """The square of a movement's length, by what counts for a diagnosis."""
    return float(((moved.scores * weights()) ** 2).sum())


def worded(found: tuple[Effect, ...]) -> str:
    """Effects in words: the first without its name, which is said already."""
    parts = [" ".join(part for part in (one.detail, f"{number(one.value)} {one.unit}") if part) for one in found]
    names = ["", *(f"{one.cause} " for one in found[1:])]
    return " and ".join(f"{name}{part}" for name, part in zip(names, parts, strict=True))


def surplus(window: Window, left: Moved) -> bool:
    """Whether features are farther off than the causes explain."""
    distance, beyond = float(window.scores[DISTANCE]), float(left.scores[DISTANCE])
    return bool(beyond > max(SURPLUS + 3 / np.sqrt(window.worth), SURPLUS_SHARE * distance))


def certain(window: Window) -> bool:
    """Whether any figure's mean is off by more than chance."""
    return bool(np.abs(window.scores).max() * np.sqrt(window.worth) > CERTAIN)


def strange(window: Window) -> float:
    """Share of pictures whose features are unlike any of the reference."""
    shares = window.counts / max(window.pictures, 1)
    return float(window.shifts[STRANGE] + shares @ window.known.baseline.usual.mean[:, STRANGE])


def strangers(window: Window) -> bool:
    """Whether some pictures are far off and the others as ever: something new among the old."""
    share, distance = strange(window), float(window.scores[DISTANCE])
    low, high = STRANGE_SHARE
    return low < share < high and 0 < distance < STRANGE_SCORE * share


def without_mix(window: Window) -> Window:
    """The same, less what other shares of classes explain: pictures that the model errs on come oftener, or less."""
    labelled = window.known.labelled
    solved = shift.by_confusion(labelled.confusion, np.maximum(labelled.prior, 1e-6), window.counts)
    mix = solved.weights * labelled.prior
    mix = mix / max(mix.sum(), 1e-12)
    return Window(window.known, window.counts, window.scores - mix @ labelled.scores, window.shifts)
