"""Baseline of a bundle: what is usual for its reference images, ready to score and sum up new images against it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.cell_statistics import (
    MAX_ABS_SCORE,
    SHRINKAGE_IMAGES,
    ClassStatistics,
    ImageFeatures,
    fit_cell_statistics,
)
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION, ConditionRule
from equipoise.drift.charts.sums import FixedPointSums, SumsLayout
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.image_stats import image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.drift.features.statistic_schema import StatisticSchema
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray

MIN_REFERENCE_IMAGES = 100  # smaller references cannot tell drift from chance
RANK_MARGIN_STANDARD_ERRORS = 3.0  # by which bets allow for the sampling error of the reference


@dataclass(frozen=True, eq=False)
class Baseline:
    """Reference of a bundle, ready to score images against it."""

    temperature: float
    """softmax temperature of the calibrated model"""
    random_fourier: RandomFourierFeatures
    usual: ClassStatistics
    layout: SumsLayout
    ranked: NDArray[np.float32]
    """(charted statistics, reference images): scores of the reference, sorted for each statistic"""
    rank_margin: float
    """how far the sampling error of the reference may move a mean rank"""
    condition_rule: ConditionRule | None = None
    """assigns images to conditions; None where one is known"""
    schema: StatisticSchema = IMAGE_SCHEMA
    """charted statistics"""

    def extract_features(self, pictures: NDArray[np.uint8], logits: AnyArray, features: AnyArray) -> ImageFeatures:
        """Extract what charts need of images from the pixels, logits and features, and assign their conditions."""
        return self.assign_conditions(self.extract_unassigned(pictures, logits, features))

    def extract_unassigned(self, pictures: NDArray[np.uint8], logits: AnyArray, features: AnyArray) -> ImageFeatures:
        """Extract the same features of images that are all taken to be of the first condition."""
        confidence = confidence_statistics(logits, self.temperature)
        statistics = np.concatenate([image_statistics(pictures), confidence], 1)
        return ImageFeatures(statistics, logits.argmax(1), self.random_fourier(features))

    def extract_from_statistics(
        self, statistics: NDArray[np.float32], predicted_classes: NDArray[np.int64], features: AnyArray
    ) -> ImageFeatures:
        """Extract what charts need of examples of any kind from their statistics, and assign their conditions."""
        return self.assign_conditions(ImageFeatures(statistics, predicted_classes, self.random_fourier(features)))

    def assign_conditions(self, image_features: ImageFeatures) -> ImageFeatures:
        """Return the features with each image assigned to the nearest known condition."""
        return apply_condition_rule(self.condition_rule, image_features, self.layout.class_count)

    def sum_features(self, image_features: ImageFeatures) -> FixedPointSums:
        """Sum what charts and bets need of the images into one row of integers that replicas can add up."""
        shifts = self.usual.shifts(image_features)
        scores = np.clip(shifts / self.usual.scale[image_features.cells], -MAX_ABS_SCORE, MAX_ABS_SCORE)
        low, high = self.betting_gains(scores)
        return self.layout.pack(
            all=np.array([len(image_features)]),
            cells=np.bincount(image_features.cells, minlength=self.layout.cell_count),
            scores=scores,
            shifts=shifts,
            low=low,
            high=high,
            waves=image_features.fourier_features,
        )

    def betting_gains(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the logarithmic gains of bets on low and on high ranks."""
        rank = self.ranks(scores) - 0.5
        # the rank of a binary statistic would reveal the class, and runs of one class would win bets
        rank[:, self.schema.is_binary] = 0
        return np.log1p(-rank - self.rank_margin), np.log1p(rank - self.rank_margin)

    def ranks(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of the reference that scores lower; equal scores count by half."""
        columns = zip(self.ranked, scores.T.astype(np.float32), strict=True)
        sides = [line.searchsorted(score, "left") + line.searchsorted(score, "right") for line, score in columns]
        return np.asarray(np.stack(sides, 1) / (2 * self.ranked.shape[1]))


def apply_condition_rule(rule: ConditionRule | None, image_features: ImageFeatures, class_count: int) -> ImageFeatures:
    """Return the features with each image assigned to a condition; all are of the first if there is no rule."""
    if rule is None:
        return replace(image_features, conditions=None)
    conditions = rule.assign(image_features.statistics, image_features.predicted_classes)
    return replace(image_features, conditions=conditions, class_count=class_count)


def fit_baseline(
    image_features: ImageFeatures,
    class_count: int,
    random_fourier: RandomFourierFeatures,
    temperature: float,
    condition_names: Sequence[str] = (PUBLISHED_CONDITION,),
    schema: StatisticSchema = IMAGE_SCHEMA,
) -> Baseline:
    """Fit the baseline to the features of reference images, whose `conditions` say which condition each comes from.

    Images are assigned to conditions by the statistics of each by origin, here as later on; the statistics that charts
    compare with are then fitted to the images assigned. Refuses conditions of fewer than MIN_REFERENCE_IMAGES.
    """
    condition_count = len(condition_names)
    origin_counts = count_by_condition(image_features, condition_count)
    if origin_counts.min() < MIN_REFERENCE_IMAGES:
        refuse_few_images(condition_names, origin_counts, "has", schema.example_name)
    rule = fit_condition_rule(image_features, class_count, condition_count, schema) if condition_count > 1 else None
    assigned = apply_condition_rule(rule, image_features, class_count)
    assigned_counts = count_by_condition(assigned, condition_count)
    if assigned_counts.min() < MIN_REFERENCE_IMAGES:
        refuse_few_images(condition_names, assigned_counts, "is nearest to", schema.example_name)
    statistics = fit_cell_statistics(assigned, class_count, condition_count)
    ranked = np.sort(statistics.scores(assigned).astype(np.float32), 0).T
    min_cell_images = max(statistics.counts[statistics.counts > 0].min(), SHRINKAGE_IMAGES)
    layout = SumsLayout(class_count, len(schema), image_features.fourier_features.shape[1], condition_count)
    margin = rank_margin(min_cell_images)
    return Baseline(temperature, random_fourier, statistics, layout, np.ascontiguousarray(ranked), margin, rule, schema)


def fit_condition_rule(
    image_features: ImageFeatures, class_count: int, condition_count: int, schema: StatisticSchema
) -> ConditionRule:
    """Fit the rule that assigns images to conditions, given the condition that each reference image comes from."""
    statistics = fit_cell_statistics(image_features, class_count, condition_count)
    shape = condition_count, class_count, schema.input_count
    mean, scale = (table[:, : schema.input_count].reshape(shape) for table in (statistics.mean, statistics.scale))
    return ConditionRule(mean, scale, schema.condition_weights)


def count_by_condition(image_features: ImageFeatures, condition_count: int) -> NDArray[np.int64]:
    """Return (conditions,) the number of images of each condition."""
    conditions = image_features.conditions
    if conditions is None:
        conditions = np.zeros(len(image_features), np.int64)
    return np.bincount(conditions, minlength=condition_count)


def refuse_few_images(
    condition_names: Sequence[str], counts: NDArray[np.int64], relation: str, example_name: str
) -> NoReturn:
    """Refuse a reference one condition of which has too few examples."""
    smallest = int(counts.argmin())
    subject = "the reference" if len(counts) == 1 else f"the condition {condition_names[smallest]!r}"
    raise EquipoiseError(
        "reference-unusable",
        f"{subject} {relation} {counts[smallest]} {example_name}",
        f"at least {MIN_REFERENCE_IMAGES} are needed to tell drift from chance",
    )


def rank_margin(min_class_images: float) -> float:
    """Return how far the mean of uniform ranks may be from a half for a class of so few reference images."""
    return float(min(RANK_MARGIN_STANDARD_ERRORS * np.sqrt(1 / 12 / min_class_images), 0.45))
