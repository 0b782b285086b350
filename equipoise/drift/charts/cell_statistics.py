"""Statistics of reference images by cell, a pair of a condition and a predicted class, and the scores of new images.

A client that looks at one product for a minute sends many images of one class. Each statistic is therefore compared
with the reference images of the same predicted class: the difference depends on light and camera, not on the content.
Where several conditions are known, such as two lights, it is compared with those of the nearest condition too.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.features.statistic_schema import DISTANCE_COLUMN
from equipoise.type_aliases import AnyArray

MAX_ABS_SCORE = 4.0  # standard deviations: one odd image alone is not drift
MIN_SCALE = 0.01  # smallest standard deviation, for statistics that are constant in the reference
SHRINKAGE_IMAGES = 5.0  # weight of the mean over all classes in each class mean, in images
MIN_OUTLIER_SCORE = 3.0  # standard deviations above the mean distance of the class
"""from it on a distance is an outlier: content that the model has never seen"""


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Statistics, predicted classes and Fourier features of a few images, rows or texts, one row per example."""

    statistics: NDArray[np.float32]
    """(n, charted statistics without the last two)"""
    predicted_classes: NDArray[np.int64]
    """(n,) class indices"""
    fourier_features: NDArray[np.float32]
    """(n, Fourier features)"""
    conditions: NDArray[np.int64] | None = None
    """(n,) indices of the conditions of the images; None: all are of the first"""
    class_count: int = 0
    """number of classes; only needed with `conditions`"""

    @property
    def cells(self) -> NDArray[np.int64]:
        """Indices of the cells of the images, (n,)."""
        if self.conditions is None:
            return self.predicted_classes
        return self.conditions * self.class_count + self.predicted_classes

    def __len__(self) -> int:
        return len(self.predicted_classes)

    def select(self, indices: list[int] | NDArray[np.int64]) -> "ImageFeatures":
        """Return the rows of the given indices."""
        return ImageFeatures(
            self.statistics[indices],
            self.predicted_classes[indices],
            self.fourier_features[indices],
            None if self.conditions is None else self.conditions[indices],
            self.class_count,
        )

    def select_condition(self, condition: int) -> "ImageFeatures":
        """Return the images of one condition, as if no other were known."""
        if self.conditions is None:
            return self
        return replace(self.select(np.flatnonzero(self.conditions == condition)), conditions=None)


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """Statistics and Fourier features of a reference by cell: predicted class, of each known condition."""

    counts: NDArray[np.float64]
    """(cells,) number of images"""
    mean: NDArray[np.float64]
    """(cells, charted statistics) means"""
    scale: NDArray[np.float64]
    """(cells, charted statistics) standard deviations"""
    waves: NDArray[np.float64]
    """(cells, Fourier features) means"""
    trace: NDArray[np.float64]
    """(cells,) mean squared distance of Fourier features from the mean of their cell"""

    def scores(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Return the shifts in standard deviations, clipped to +-MAX_ABS_SCORE."""
        return np.clip(self.shifts(image_features) / self.scale[image_features.cells], -MAX_ABS_SCORE, MAX_ABS_SCORE)

    def shifts(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Return (n, charted statistics): differences from the cell means, in the units of each statistic."""
        return (
            np.concatenate([image_features.statistics, self.distance_statistics(image_features)], 1)
            - self.mean[image_features.cells]
        )

    def distance_statistics(self, image_features: ImageFeatures) -> NDArray[np.float64]:
        """Return (n, 2): squared distances of features from the mean of their cell, and whether they are outliers."""
        distance = squared_cell_distances(image_features, self.waves)
        cells = image_features.cells
        score = (distance - self.mean[cells, DISTANCE_COLUMN]) / self.scale[cells, DISTANCE_COLUMN]
        return np.stack([distance, score > MIN_OUTLIER_SCORE], 1)


def squared_cell_distances(image_features: ImageFeatures, cell_means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the squared distances of Fourier features (of length 1) from the mean of their cell."""
    mean = cell_means[image_features.cells]
    return np.asarray(1 - 2 * (image_features.fourier_features * mean).sum(1) + (mean**2).sum(1))


def fit_cell_statistics(image_features: ImageFeatures, class_count: int, condition_count: int) -> ClassStatistics:
    """Fit the statistics of a reference by cell: by class, for each condition by itself.

    Classes of few images in a later condition are shrunk towards what the class is in the first one, moved by as much
    as the condition moves the others.
    """
    of_condition = image_features.select_condition
    first = fit_class_statistics(of_condition(0), class_count)
    parts = [
        first,
        *(fit_class_statistics(of_condition(index), class_count, first) for index in range(1, condition_count)),
    ]
    arrays = {field.name: [getattr(part, field.name) for part in parts] for field in fields(ClassStatistics)}
    return ClassStatistics(**{name: np.concatenate(rows) for name, rows in arrays.items()})


def fit_class_statistics(
    image_features: ImageFeatures, class_count: int, first: ClassStatistics | None = None
) -> ClassStatistics:
    """Fit the statistics of one condition by class; classes of few images are shrunk.

    They are shrunk towards the mean of all images, or of their differences from the statistics of the first condition.
    """
    classes = image_features.predicted_classes
    member = np.zeros((class_count, len(image_features)))
    member[classes, np.arange(len(image_features))] = 1
    first_waves, first_mean = (None, None) if first is None else (first.waves, first.mean)
    waves = moved_class_means(member, classes, image_features.fourier_features.astype(np.float64), first_waves)
    residuals = image_features.fourier_features - waves[classes]
    trace = shrunk_class_means(member, (residuals**2).sum(1)[:, None])[:, 0]
    distance = squared_cell_distances(image_features, waves)[:, None]
    values = np.concatenate([image_features.statistics, distance], 1)
    first_values, first_outliers = (None, None) if first_mean is None else (first_mean[:, :-1], first_mean[:, -1:])
    mean, scale = class_moments(member, classes, values, first_values)
    outlier = (distance - mean[classes, -1:]) / scale[classes, -1:] > MIN_OUTLIER_SCORE
    outlier_moments = class_moments(member, classes, outlier.astype(np.float64), first_outliers)
    mean, scale = (np.concatenate(parts, 1) for parts in zip((mean, scale), outlier_moments, strict=True))
    return ClassStatistics(member.sum(1), mean, scale, waves, trace)


def class_moments(
    membership: NDArray[np.float64],
    classes: NDArray[np.int64],
    values: AnyArray,
    first_mean: NDArray[np.float64] | None = None,
) -> tuple[Any, Any]:
    """Return the shrunk means and standard deviations by class."""
    values = values.astype(np.float64)
    mean = moved_class_means(membership, classes, values, first_mean)
    return mean, np.maximum(np.sqrt(shrunk_class_means(membership, (values - mean[classes]) ** 2)), MIN_SCALE)


def moved_class_means(
    membership: NDArray[np.float64],
    classes: NDArray[np.int64],
    values: NDArray[np.float64],
    first_mean: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """Return the shrunk means by class: of the values, or of their differences from the means of a first condition."""
    if first_mean is None:
        return shrunk_class_means(membership, values)
    return first_mean + shrunk_class_means(membership, values - first_mean[classes])


def shrunk_class_means(membership: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the means by class, shrunk towards the mean of all images by SHRINKAGE_IMAGES."""
    sums, counts = membership @ values, membership.sum(1)[:, None]
    return np.asarray((sums + SHRINKAGE_IMAGES * values.mean(0)) / (counts + SHRINKAGE_IMAGES))
