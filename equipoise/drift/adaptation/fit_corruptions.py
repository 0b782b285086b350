"""Changes fitted to pictures of the drift itself: a verdict names the causes, pictures say how much of each.

Sums over many requests name one cause after the other, each as if it were alone. With some pictures of the drift at
hand, all sizes are found together: those with which the reference's pictures come to look most like them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from equipoise.drift.adaptation.workload import Change, changed
from equipoise.drift.corruptions import Kind, kinds
from equipoise.drift.diagnosis.effects import weights
from equipoise.drift.features.image_stats import NAMES, statistics

Array = NDArray[Any]

MOST = 4  # changes at once
BETTER = 0.25  # share of what is left, by which one more change must bring pictures nearer
ROUNDS = 100  # of the search, each of which changes all pictures once
FEWEST = 30  # pictures of the drift
FEW = 100  # of the reference's, that are changed again and again


class Fit:
    """How far changed pictures are from those of the drift."""

    def __init__(self, plain: Tensor, plain_labels: Array, drifted: Tensor, drifted_labels: Array) -> None:
        some = np.linspace(0, len(plain) - 1, min(FEW, len(plain))).astype(int)
        self.plain, self.labels = plain[some], plain_labels[some]
        self.classes = np.intersect1d(self.labels, drifted_labels)
        self.aim = by_class(statistics(drifted.numpy()), drifted_labels, self.classes)
        self.scale = np.maximum(statistics(self.plain.numpy()).std(0), 0.01)
        self.weights = weights()[: len(NAMES)]

    def away(self, changes: list[Change]) -> float:
        """The squared distance of mean figures, in standard deviations, over classes that both have."""
        figures = statistics(changed(self.plain, changes).numpy())
        apart = (by_class(figures, self.labels, self.classes) - self.aim) / self.scale
        return float(((apart.mean(0) * self.weights) ** 2).sum())


def by_class(figures: Array, labels: Array, classes: Array) -> Array:
    """Mean figures of each class."""
    return np.stack([figures[labels == one].mean(0) for one in classes])


def refined(changes: Sequence[Change], fit: Fit) -> list[Change]:
    """The changes at their best sizes together, and further ones where they bring pictures nearer."""
    found, left = sized([*changes], fit)
    while len(found) < MOST:
        tried = [
            Change(one.cause, one.detail, one.sizes[len(one.sizes) // 2]) for one in kinds() if usable(one, found, fit)
        ]
        best = min(tried, key=lambda one: fit.away([*found, one]))
        more, closer = sized([*found, best], fit)
        if closer > (1 - BETTER) * left:
            break
        found, left = more, closer
    return found


def usable(kind: Kind, found: list[Change], fit: Fit) -> bool:
    """Whether a kind of change may come on top of those that were found."""
    there = {(one.cause, one.detail) for one in found}
    same = kind.cause in {one.cause for one in found} - {"reflection"}
    colours = fit.plain.shape[1] == 3 or not kind.colours
    return (
        colours and kind.cause not in ("features", "geometry") and not same and (kind.cause, kind.detail) not in there
    )


def sized(changes: list[Change], fit: Fit) -> tuple[list[Change], float]:
    """The sizes that bring pictures nearest, and how far they stay."""
    free = [place for place, one in enumerate(changes) if len(one.kind.sizes) > 1]
    if not free:
        return changes, fit.away(changes)

    def at(shares: Array) -> list[Change]:
        moved = [*changes]
        for place, share in zip(free, np.clip(shares, 0.02, 4), strict=True):
            moved[place] = replace(changes[place], value=changes[place].sized(float(share)))
        return moved

    found = minimize(
        lambda shares: fit.away(at(shares)), np.ones(len(free)), method="Nelder-Mead", options={"maxfev": ROUNDS}
    )
    return at(found.x), float(found.fun)
