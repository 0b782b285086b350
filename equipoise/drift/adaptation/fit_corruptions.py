"""Fit the sizes of corruptions to labelled images of the drift: a verdict only names the causes, images say how much.

A verdict from sums over many requests names one cause after another, each as if it were alone. With labelled images of
the drift, all sizes are fitted together: those with which the reference images come to look most like them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import minimize
from torch import Tensor

from equipoise.drift.adaptation.workload import CorruptionAmount, apply_corruptions
from equipoise.drift.corruptions import Corruption, all_corruptions
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.image_stats import image_statistics
from equipoise.spacing import evenly_spaced_indices
from equipoise.type_aliases import AnyArray

MAX_CORRUPTIONS = 4  # corruptions at once
MIN_DISTANCE_REDUCTION = 0.25  # share of the squared distance left by which a further corruption must reduce it
MAX_SEARCH_EVALUATIONS = 100  # evaluations per search, each of which corrupts all reference images once
MIN_DRIFTED_IMAGES = 30  # labelled images of the drift below which nothing is fitted
MAX_FIT_REFERENCE_IMAGES = 100  # reference images that are corrupted in each evaluation


class CorruptionFit:
    """Distance of corrupted reference images from labelled images of the drift."""

    def __init__(
        self, reference_images: Tensor, reference_labels: AnyArray, drifted_images: Tensor, drifted_labels: AnyArray
    ) -> None:
        sample = evenly_spaced_indices(len(reference_images), MAX_FIT_REFERENCE_IMAGES)
        self.reference_images, self.reference_labels = reference_images[sample], reference_labels[sample]
        self.shared_classes = np.intersect1d(self.reference_labels, drifted_labels)
        self.target_means = mean_by_class(image_statistics(drifted_images.numpy()), drifted_labels, self.shared_classes)
        self.scale = np.maximum(image_statistics(self.reference_images.numpy()).std(0), 0.01)
        self.weights = IMAGE_SCHEMA.cause_weights[: IMAGE_SCHEMA.input_count]

    def squared_distance(self, amounts: list[CorruptionAmount]) -> float:
        """Return the squared distance of the mean image statistics after corruption, in standard deviations.

        Means are taken by class, over the classes that both sets of images have.
        """
        statistics = image_statistics(apply_corruptions(self.reference_images, amounts).numpy())
        means = mean_by_class(statistics, self.reference_labels, self.shared_classes)
        difference = (means - self.target_means) / self.scale
        return float(((difference.mean(0) * self.weights) ** 2).sum())


def mean_by_class(statistics: AnyArray, labels: AnyArray, classes: AnyArray) -> AnyArray:
    """Return the mean image statistics of each class, (classes, statistics)."""
    return np.stack([statistics[labels == label].mean(0) for label in classes])


def fit_corruption_amounts(amounts: Sequence[CorruptionAmount], fit: CorruptionFit) -> list[CorruptionAmount]:
    """Fit the sizes of all corruptions together, and add further ones while they reduce the distance enough."""
    best, distance = optimize_amounts([*amounts], fit)
    while len(best) < MAX_CORRUPTIONS:
        candidates = [
            CorruptionAmount(corruption.cause, corruption.detail, corruption.sizes[len(corruption.sizes) // 2])
            for corruption in all_corruptions()
            if is_candidate(corruption, best, fit)
        ]
        added = min(candidates, key=lambda candidate: fit.squared_distance([*best, candidate]))
        extended, extended_distance = optimize_amounts([*best, added], fit)
        if extended_distance > (1 - MIN_DISTANCE_REDUCTION) * distance:
            break
        best, distance = extended, extended_distance
    return best


def is_candidate(corruption: Corruption, selected: list[CorruptionAmount], fit: CorruptionFit) -> bool:
    """Return whether a corruption may be added to those selected."""
    names = {(amount.cause, amount.detail) for amount in selected}
    has_cause = corruption.cause in {amount.cause for amount in selected} - {"reflection"}
    applies = fit.reference_images.shape[1] == 3 or not corruption.requires_color
    return (
        applies
        and corruption.cause not in ("features", "geometry")
        and not has_cause
        and (corruption.cause, corruption.detail) not in names
    )


def optimize_amounts(amounts: list[CorruptionAmount], fit: CorruptionFit) -> tuple[list[CorruptionAmount], float]:
    """Return the amounts with the sizes that minimize the squared distance, and that distance."""
    free = [index for index, amount in enumerate(amounts) if len(amount.corruption.sizes) > 1]
    if not free:
        return amounts, fit.squared_distance(amounts)

    def scaled_amounts(shares: AnyArray) -> list[CorruptionAmount]:
        scaled = [*amounts]
        for index, share in zip(free, np.clip(shares, 0.02, 4), strict=True):
            scaled[index] = replace(amounts[index], value=amounts[index].scaled_value(float(share)))
        return scaled

    result = minimize(
        lambda shares: fit.squared_distance(scaled_amounts(shares)),
        np.ones(len(free)),
        method="Nelder-Mead",
        options={"maxfev": MAX_SEARCH_EVALUATIONS},
    )
    return scaled_amounts(result.x), float(result.fun)
