"""Changes fitted to pictures of the drift itself: a verdict names the causes, pictures say how much of each.

Sums over many requests name one cause after the other, each as if it were alone. With some pictures of the drift at
hand, all sizes are found together: those with which the reference's pictures come to look most like them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize
from torch import Tensor

from equipoise.drift.adaptation.workload import CorruptionAmount, apply_corruptions
from equipoise.drift.corruptions import Corruption, all_corruptions
from equipoise.drift.diagnosis.effects import feature_weights
from equipoise.drift.features.image_stats import STATISTIC_NAMES, image_statistics
from equipoise.type_aliases import AnyArray

MAX_CORRUPTIONS = 4  # changes at once
MIN_DISTANCE_REDUCTION = 0.25  # share of what is left, by which one more change must bring pictures nearer
MAX_SEARCH_EVALUATIONS = 100  # of the search, each of which changes all pictures once
MIN_DRIFTED_IMAGES = 30  # pictures of the drift
MAX_FIT_REFERENCE_IMAGES = 100  # of the reference's, that are changed again and again


class CorruptionFit:
    """How far changed pictures are from those of the drift."""

    def __init__(
        self, reference_images: Tensor, reference_labels: AnyArray, drifted_images: Tensor, drifted_labels: AnyArray
    ) -> None:
        some = np.linspace(0, len(reference_images) - 1, min(MAX_FIT_REFERENCE_IMAGES, len(reference_images))).astype(
            int
        )
        self.reference_images, self.reference_labels = reference_images[some], reference_labels[some]
        self.shared_classes = np.intersect1d(self.reference_labels, drifted_labels)
        self.target_means = mean_by_class(image_statistics(drifted_images.numpy()), drifted_labels, self.shared_classes)
        self.scale = np.maximum(image_statistics(self.reference_images.numpy()).std(0), 0.01)
        self.weights = feature_weights()[: len(STATISTIC_NAMES)]

    def squared_distance(self, amounts: list[CorruptionAmount]) -> float:
        """The squared distance of mean figures, in standard deviations, over classes that both have."""
        figures = image_statistics(apply_corruptions(self.reference_images, amounts).numpy())
        apart = (mean_by_class(figures, self.reference_labels, self.shared_classes) - self.target_means) / self.scale
        return float(((apart.mean(0) * self.weights) ** 2).sum())


def mean_by_class(statistics: AnyArray, labels: AnyArray, classes: AnyArray) -> AnyArray:
    """Mean figures of each class."""
    return np.stack([statistics[labels == one].mean(0) for one in classes])


def fit_corruption_amounts(amounts: Sequence[CorruptionAmount], fit: CorruptionFit) -> list[CorruptionAmount]:
    """The changes at their best sizes together, and further ones where they bring pictures nearer."""
    found, left = optimize_amounts([*amounts], fit)
    while len(found) < MAX_CORRUPTIONS:
        tried = [
            CorruptionAmount(one.cause, one.detail, one.sizes[len(one.sizes) // 2])
            for one in all_corruptions()
            if is_candidate(one, found, fit)
        ]
        best = min(tried, key=lambda one: fit.squared_distance([*found, one]))
        more, closer = optimize_amounts([*found, best], fit)
        if closer > (1 - MIN_DISTANCE_REDUCTION) * left:
            break
        found, left = more, closer
    return found


def is_candidate(corruption: Corruption, selected: list[CorruptionAmount], fit: CorruptionFit) -> bool:
    """Whether a kind of change may come on top of those that were found."""
    there = {(one.cause, one.detail) for one in selected}
    same = corruption.cause in {one.cause for one in selected} - {"reflection"}
    colours = fit.reference_images.shape[1] == 3 or not corruption.requires_color
    return (
        colours
        and corruption.cause not in ("features", "geometry")
        and not same
        and (corruption.cause, corruption.detail) not in there
    )


def optimize_amounts(amounts: list[CorruptionAmount], fit: CorruptionFit) -> tuple[list[CorruptionAmount], float]:
    """The sizes that bring pictures nearest, and how far they stay."""
    free = [place for place, one in enumerate(amounts) if len(one.corruption.sizes) > 1]
    if not free:
        return amounts, fit.squared_distance(amounts)

    def at(shares: AnyArray) -> list[CorruptionAmount]:
        moved = [*amounts]
        for place, share in zip(free, np.clip(shares, 0.02, 4), strict=True):
            moved[place] = replace(amounts[place], value=amounts[place].scaled_value(float(share)))
        return moved

    found = minimize(
        lambda shares: fit.squared_distance(at(shares)),
        np.ones(len(free)),
        method="Nelder-Mead",
        options={"maxfev": MAX_SEARCH_EVALUATIONS},
    )
    return at(found.x), float(found.fun)
