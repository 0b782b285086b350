"""Baseline of a bundle: the statistics of its reference images by predicted class, and the scores of new images.

A client that looks at one product for a minute sends many images of one class. Each statistic is therefore compared
with the reference images of the same predicted class: the difference depends on light and camera, not on the content.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.sums import FixedPointSums, SumsLayout
from equipoise.drift.features.confidence import CONFIDENCE_STATISTICS, confidence_statistics
from equipoise.drift.features.image_stats import STATISTIC_NAMES, image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray

MIN_REFERENCE_IMAGES = 100  # smaller references cannot tell drift from chance
MAX_ABS_SCORE = 4.0  # standard deviations: one odd image alone is not drift
MIN_SCALE = 0.01  # smallest standard deviation, for statistics that are constant in the reference
SHRINKAGE_IMAGES = 5.0  # weight of the mean over all classes in each class mean, in images
CHARTED_FEATURES = (*STATISTIC_NAMES, *CONFIDENCE_STATISTICS, "distance", "strange")
"""charted statistics of each image; the last two are the squared distance of its features from the mean of their class,
and whether that distance is an outlier: content that the model has never seen"""
MIN_OUTLIER_SCORE = 3.0  # standard deviations above the mean distance of the class
RANK_MARGIN_STANDARD_ERRORS = 3.0  # by which bets allow for the sampling error of the reference


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Statistics, predicted classes and Fourier features of a few images, one row per image."""

    statistics: NDArray[np.float32]
    """(n, charted statistics without the last two)"""
    predicted_classes: NDArray[np.int64]
    """(n,) class indices"""
    fourier_features: NDArray[np.float32]
    """(n, Fourier features)"""

    def __len__(self) -> int:
        return len(self.predicted_classes)

    def select(self, indices: list[int]) -> "ImageFeatures":
        """Return the rows of the given indices."""
        return ImageFeatures(self.statistics[indices], self.predicted_classes[indices], self.fourier_features[indices])


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Statistics and Fourier features of a reference by predicted class."""

    counts: NDArray[np.float64]
    """(classes,) number of images"""
    mean: NDArray[np.float64]
    """(classes, charted statistics) means"""
    scale: NDArray[np.float64]
    """(classes, charted statistics) standard deviations"""
    waves: NDArray[np.float64]
    """(classes, Fourier features) means"""
    trace: NDArray[np.float64]
    """(classes,) mean squared distance of Fourier features from the mean of their class"""

    def scores(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Return the shifts in standard deviations, clipped to +-MAX_ABS_SCORE."""
        return np.clip(
            self.shifts(image_features) / self.scale[image_features.predicted_classes], -MAX_ABS_SCORE, MAX_ABS_SCORE
        )

    def shifts(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Return (n, charted statistics): differences from the class means, in the units of each statistic."""
        return (
            np.concatenate([image_features.statistics, self.distance_statistics(image_features)], 1)
            - self.mean[image_features.predicted_classes]
        )

    def distance_statistics(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Return (n, 2): squared distances of features from the mean of their class, and whether they are outliers."""
        distance = squared_class_distances(image_features, self.waves)
        index = CHARTED_FEATURES.index("distance")
        score = (distance - self.mean[image_features.predicted_classes, index]) / self.scale[
            image_features.predicted_classes, index
        ]
        return np.stack([distance, score > MIN_OUTLIER_SCORE], 1)


def squared_class_distances(image_features: ImageFeatures, class_means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distances of Fourier features (of length 1) from the mean of their class."""
    mean = class_means[image_features.predicted_classes]
    return np.asarray(1 - 2 * (image_features.fourier_features * mean).sum(1) + (mean**2).sum(1))


def fit_class_statistics(image_features: ImageFeatures, class_count: int) -> ClassStatistics:
    """Fit the class statistics of a reference; classes with few images are shrunk towards the mean of all images."""
    member = np.zeros((class_count, len(image_features)))
    member[image_features.predicted_classes, np.arange(len(image_features))] = 1
    waves = shrunk_class_means(member, image_features.fourier_features.astype(np.float64))
    residuals = image_features.fourier_features - waves[image_features.predicted_classes]
    trace = shrunk_class_means(member, (residuals**2).sum(1)[:, None])[:, 0]
    distance = squared_class_distances(image_features, waves)[:, None]
    mean, scale = class_moments(
        member, image_features.predicted_classes, np.concatenate([image_features.statistics, distance], 1)
    )
    outlier = (distance - mean[image_features.predicted_classes, -1:]) / scale[
        image_features.predicted_classes, -1:
    ] > MIN_OUTLIER_SCORE
    outlier_mean, outlier_scale = class_moments(member, image_features.predicted_classes, outlier.astype(np.float64))
    mean, scale = np.concatenate([mean, outlier_mean], 1), np.concatenate([scale, outlier_scale], 1)
    return ClassStatistics(member.sum(1), mean, scale, waves, trace)


def class_moments(membership: NDArray[np.float64], classes: NDArray[np.int64], values: AnyArray) -> tuple[Any, Any]:
    """Return the shrunk means and standard deviations by class."""
    values = values.astype(np.float64)
    mean = shrunk_class_means(membership, values)
    return mean, np.maximum(np.sqrt(shrunk_class_means(membership, (values - mean[classes]) ** 2)), MIN_SCALE)


def shrunk_class_means(membership: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means by class, shrunk towards the mean of all images by SHRINKAGE_IMAGES."""
    sums, counts = membership @ values, membership.sum(1)[:, None]
    return np.asarray((sums + SHRINKAGE_IMAGES * values.mean(0)) / (counts + SHRINKAGE_IMAGES))


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

    def extract_features(self, pictures: NDArray[np.uint8], logits: AnyArray, features: AnyArray) -> ImageFeatures:
        """Extract the statistics and Fourier features of images from the pixels, logits and features of the model."""
        confidence = confidence_statistics(logits, self.temperature)
        statistics = np.concatenate([image_statistics(pictures), confidence], 1)
        return ImageFeatures(statistics, logits.argmax(1), self.random_fourier(features))

    def sum_features(self, image_features: ImageFeatures) -> FixedPointSums:
        """Sum what charts and bets need of the images into one row of integers that replicas can add up."""
        shifts = self.usual.shifts(image_features)
        scores = np.clip(shifts / self.usual.scale[image_features.predicted_classes], -MAX_ABS_SCORE, MAX_ABS_SCORE)
        low, high = self.betting_gains(scores)
        return self.layout.pack(
            all=np.array([len(image_features)]),
            classes=np.bincount(image_features.predicted_classes, minlength=self.layout.class_count),
            scores=scores,
            shifts=shifts,
            low=low,
            high=high,
            waves=image_features.fourier_features,
        )

    def betting_gains(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the logarithmic gains of bets on low and on high ranks."""
        rank = self.ranks(scores) - 0.5
        # a binary statistic: its rank would reveal the class, and runs of one class would win bets
        rank[:, CHARTED_FEATURES.index("strange")] = 0
        return np.log1p(-rank - self.rank_margin), np.log1p(rank - self.rank_margin)

    def ranks(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the share of the reference that scores lower; equal scores count by half."""
        columns = zip(self.ranked, scores.T.astype(np.float32), strict=True)
        sides = [line.searchsorted(score, "left") + line.searchsorted(score, "right") for line, score in columns]
        return np.asarray(np.stack(sides, 1) / (2 * self.ranked.shape[1]))


def fit_baseline(
    image_features: ImageFeatures, class_count: int, random_fourier: RandomFourierFeatures, temperature: float
) -> Baseline:
    """Fit the baseline to the features of the reference images; refuse fewer than MIN_REFERENCE_IMAGES."""
    if len(image_features) < MIN_REFERENCE_IMAGES:
        raise EquipoiseError(
            "reference-unusable",
            f"the reference has {len(image_features)} images",
            f"at least {MIN_REFERENCE_IMAGES} are needed to tell drift from chance",
        )
    statistics = fit_class_statistics(image_features, class_count)
    ranked = np.sort(statistics.scores(image_features).astype(np.float32), 0).T
    min_class_images = max(statistics.counts[statistics.counts > 0].min(), SHRINKAGE_IMAGES)
    layout = SumsLayout(class_count, len(CHARTED_FEATURES), image_features.fourier_features.shape[1])
    margin = rank_margin(min_class_images)
    return Baseline(temperature, random_fourier, statistics, layout, np.ascontiguousarray(ranked), margin)


def rank_margin(min_class_images: float) -> float:
    """Return how far the mean of uniform ranks may be from a half for a class of so few reference images."""
    return float(min(RANK_MARGIN_STANDARD_ERRORS * np.sqrt(1 / 12 / min_class_images), 0.45))
