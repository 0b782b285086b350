"""A reference, as each picture is held against it: what is usual for pictures that are called the same.

Whoever looks at one product for a minute sends many pictures of one class. Each figure is therefore compared with
those of its own predicted class: what is left depends on light and camera, not on what is shown.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.sums import FixedPointSums, SumsLayout
from equipoise.drift.features.confidence import CONFIDENCE_STATISTICS, confidence_statistics
from equipoise.drift.features.image_stats import STATISTIC_NAMES, image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.type_aliases import AnyArray

MIN_REFERENCE_IMAGES = 100  # pictures of a reference from which anything can be told
MAX_ABS_SCORE = 4.0  # standard deviations: one odd picture alone is no drift
MIN_SCALE = 0.01  # of a figure that is always the same in the reference
SHRINKAGE_IMAGES = 5.0  # pictures that the whole reference counts for in what is usual for one class
CHARTED_FEATURES = (*STATISTIC_NAMES, *CONFIDENCE_STATISTICS, "distance", "strange")
"""what is charted of each picture; the last two are how far its features are from those of its class, and whether that
is hardly ever seen: something the model never met"""
MIN_OUTLIER_SCORE = 3.0  # standard deviations of the distance
RANK_MARGIN_STANDARD_ERRORS = 3.0  # standard errors by which bets allow for the reference's own scatter


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """What there is to say of a few pictures: a row each."""

    statistics: NDArray[np.float32]
    """(n, FIGURES without the last two)"""
    predicted_classes: NDArray[np.int64]
    """what they were called"""
    fourier_features: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.predicted_classes)

    def select(self, indices: list[int]) -> "ImageFeatures":
        """A few of them."""
        return ImageFeatures(self.statistics[indices], self.predicted_classes[indices], self.fourier_features[indices])


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """By predicted class, what figures and features are like in a reference."""

    counts: NDArray[np.float64]
    """(classes,) pictures"""
    mean: NDArray[np.float64]
    """(classes, FIGURES)"""
    scale: NDArray[np.float64]
    waves: NDArray[np.float64]
    """(classes, waves): means"""
    trace: NDArray[np.float64]
    """(classes,) mean square of what is left of the waves without the mean"""

    def scores(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Standard deviations from what is usual, within reason."""
        return np.clip(
            self.shifts(image_features) / self.scale[image_features.predicted_classes], -MAX_ABS_SCORE, MAX_ABS_SCORE
        )

    def shifts(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Differences from what is usual, in their own units."""
        return (
            np.concatenate([image_features.statistics, self.distance_statistics(image_features)], 1)
            - self.mean[image_features.predicted_classes]
        )

    def distance_statistics(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """(n, 2): squared distances of features from the mean of their class, and whether they are strange."""
        found = squared_class_distances(image_features, self.waves)
        place = CHARTED_FEATURES.index("distance")
        score = (found - self.mean[image_features.predicted_classes, place]) / self.scale[
            image_features.predicted_classes, place
        ]
        return np.stack([found, score > MIN_OUTLIER_SCORE], 1)


def squared_class_distances(image_features: ImageFeatures, class_means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances of features, whose length is 1, from the mean of their class."""
    mean = class_means[image_features.predicted_classes]
    return np.asarray(1 - 2 * (image_features.fourier_features * mean).sum(1) + (mean**2).sum(1))


def fit_class_statistics(image_features: ImageFeatures, class_count: int) -> ClassStatistics:
    """Of a reference. A class with few pictures leans on all of them."""
    member = np.zeros((class_count, len(image_features)))
    member[image_features.predicted_classes, np.arange(len(image_features))] = 1
    waves = shrunk_class_means(member, image_features.fourier_features.astype(np.float64))
    rest = image_features.fourier_features - waves[image_features.predicted_classes]
    trace = shrunk_class_means(member, (rest**2).sum(1)[:, None])[:, 0]
    distance = squared_class_distances(image_features, waves)[:, None]
    mean, scale = class_moments(
        member, image_features.predicted_classes, np.concatenate([image_features.statistics, distance], 1)
    )
    strange = (distance - mean[image_features.predicted_classes, -1:]) / scale[
        image_features.predicted_classes, -1:
    ] > MIN_OUTLIER_SCORE
    other_mean, other_scale = class_moments(member, image_features.predicted_classes, strange.astype(np.float64))
    mean, scale = np.concatenate([mean, other_mean], 1), np.concatenate([scale, other_scale], 1)
    return ClassStatistics(member.sum(1), mean, scale, waves, trace)


def class_moments(membership: NDArray[np.float64], classes: NDArray[np.int64], values: AnyArray) -> tuple[Any, Any]:
    """Means and standard deviations by class."""
    values = values.astype(np.float64)
    mean = shrunk_class_means(membership, values)
    return mean, np.maximum(np.sqrt(shrunk_class_means(membership, (values - mean[classes]) ** 2)), MIN_SCALE)


def shrunk_class_means(membership: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means by class, which lean on the mean of all."""
    sums, counts = membership @ values, membership.sum(1)[:, None]
    return np.asarray((sums + SHRINKAGE_IMAGES * values.mean(0)) / (counts + SHRINKAGE_IMAGES))


@dataclass(frozen=True, eq=False)
class Baseline:
    """A bundle's reference, ready for pictures to be held against it."""

    temperature: float
    random_fourier: RandomFourierFeatures
    usual: ClassStatistics
    layout: SumsLayout
    ranked: NDArray[np.float32]
    """(FIGURES, reference): scores of the reference, each figure's in order"""
    wider: float
    """of a rank: how far the reference's own scatter may move its mean"""

    def extract_features(self, pictures: NDArray[np.uint8], logits: AnyArray, features: AnyArray) -> ImageFeatures:
        """What there is to say of pictures that the model has answered."""
        sure = confidence_statistics(logits, self.temperature)
        figures = np.concatenate([image_statistics(pictures), sure], 1)
        return ImageFeatures(figures, logits.argmax(1), self.random_fourier(features))

    def sum_features(self, image_features: ImageFeatures) -> FixedPointSums:
        """What a replica adds for them."""
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
        """The logarithms of what bets on low and on high ranks bring."""
        rank = self.ranks(scores) - 0.5
        rank[:, CHARTED_FEATURES.index("strange")] = (
            0  # a yes or no: its rank would tell the class, and runs of one win bets
        )
        return np.log1p(-rank - self.wider), np.log1p(rank - self.wider)

    def ranks(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Which share of the reference scores less; the same counts by half."""
        columns = zip(self.ranked, scores.T.astype(np.float32), strict=True)
        sides = [line.searchsorted(one, "left") + line.searchsorted(one, "right") for line, one in columns]
        return np.asarray(np.stack(sides, 1) / (2 * self.ranked.shape[1]))


def fit_baseline(
    image_features: ImageFeatures, class_count: int, random_fourier: RandomFourierFeatures, temperature: float
) -> Baseline:
    """Of a reference's pictures."""
    if len(image_features) < MIN_REFERENCE_IMAGES:
        raise ValueError(
            f"the reference has {len(image_features)} pictures: "
            f"{MIN_REFERENCE_IMAGES} are needed to tell drift from chance"
        )
    found = fit_class_statistics(image_features, class_count)
    ranked = np.sort(found.scores(image_features).astype(np.float32), 0).T
    fewest = max(found.counts[found.counts > 0].min(), SHRINKAGE_IMAGES)
    layout = SumsLayout(class_count, len(CHARTED_FEATURES), image_features.fourier_features.shape[1])
    return Baseline(temperature, random_fourier, found, layout, np.ascontiguousarray(ranked), rank_margin(fewest))


def rank_margin(min_class_images: float) -> float:
    """How far the mean rank of one class may be from a half because so few were looked at: ranks are uniform."""
    return float(min(RANK_MARGIN_STANDARD_ERRORS * np.sqrt(1 / 12 / min_class_images), 0.45))
