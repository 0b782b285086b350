"""Statistics of an image and of the boxes that a detector finds in it: of its light, and of their number and kind.

The unit is the image, not the box: twenty boxes in one image are one observation of its light. Charts compare an image
with the reference images in which as many boxes were found, so that a shelf that sells out is no change of its light.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.features.image_schema import describe_image_statistic
from equipoise.drift.features.image_stats import STATISTIC_NAMES, image_statistics
from equipoise.drift.features.statistic_schema import StatisticSchema, WatchedStatistic, build_schema
from equipoise.type_aliases import AnyArray, FloatArray

COUNT_NAMES = ("no box", "1 box", "2 boxes", "3 or 4 boxes", "5 to 8 boxes", "9 to 16 boxes", "17 boxes or more")
"""classes that take the place of a label: how many boxes were found in an image"""
COUNT_BOUNDS = np.array([1, 2, 3, 5, 9, 17])  # least number of boxes of each class after the first
MAX_WATCHED_CLASSES = 20  # the first classes, whose boxes are counted by themselves
OUTPUT_CAUSE_WEIGHT = 0.5  # of what is found: it follows from the light too, which is the cause then
CLASS_CAUSE, NUMBER_CAUSE, SIZE_CAUSE = "classes of boxes", "number of boxes", "size of boxes"
BOX_UNIT = "boxes per image"
SCORE_LIMITS = (1e-6, 1 - 1e-6)  # of scores whose log odds are taken


@dataclass(frozen=True, eq=False)
class FoundBoxes:
    """Boxes that a detector finds in some images, with its features of these."""

    scores: AnyArray
    """(images, boxes)"""
    boxes: AnyArray
    """(images, boxes, 4) left, top, width and height in pixels"""
    labels: NDArray[np.int64]
    """(images, boxes) indices of classes"""
    features: AnyArray
    """(images, width)"""


@dataclass(frozen=True, eq=False)
class BoxEncoder:
    """Turns images and the boxes found in them into the statistics that charts watch."""

    class_names: tuple[str, ...]
    """classes whose boxes are counted by themselves"""
    threshold: float
    """score from which a box counts"""
    usual: FloatArray
    """(3,) mean log odds of the score, logarithm of the area and of the aspect of a box of the reference: they stand
    for those of an image without boxes"""

    @cached_property
    def schema(self) -> StatisticSchema:
        """Schema of the statistics that the encoder computes."""
        inputs = [describe_image_statistic(name) for name in STATISTIC_NAMES]
        outputs = [
            describe_output("boxes", BOX_UNIT, NUMBER_CAUSE),
            describe_output("largest score", "nats", NUMBER_CAUSE),
            describe_output("mean score", "nats", NUMBER_CAUSE),
            describe_output("area", "times", SIZE_CAUSE),
            describe_output("aspect", "times", SIZE_CAUSE),
            *(describe_output(f"boxes of {name}", BOX_UNIT, CLASS_CAUSE, name) for name in self.class_names),
        ]
        return build_schema("boxes", inputs, outputs, has_accuracy=False)

    def statistics(self, pictures: NDArray[np.uint8], found: FoundBoxes) -> NDArray[np.float32]:
        """Return (n, statistics but those of the features) of images (n, channels, height, width)."""
        return np.concatenate([image_statistics(pictures), self.output_statistics(found)], 1)

    def output_statistics(self, found: FoundBoxes) -> NDArray[np.float32]:
        """Return (n, 5 + classes): number of boxes, largest and mean score, mean area and aspect, boxes by class."""
        counts = found.scores >= self.threshold
        of_class = counts[..., None] & (found.labels[..., None] == np.arange(len(self.class_names)))
        largest = log_odds(found.scores.max(1, initial=0.0))
        columns = [counts.sum(1)[:, None], largest[:, None], self.box_means(found, counts), of_class.sum(1)]
        return np.concatenate(columns, 1).astype(np.float32)

    def box_means(self, found: FoundBoxes, counts: NDArray[np.bool_]) -> FloatArray:
        """Return (n, 3) means over the boxes that count of an image: as `usual`, which images without boxes have."""
        values = np.where(counts[..., None], describe_boxes(found), 0.0)
        numbers = counts.sum(1)[:, None]
        return np.where(numbers > 0, values.sum(1) / np.maximum(numbers, 1), self.usual)

    def classes(self, found: FoundBoxes) -> NDArray[np.int64]:
        """Return (n,) the class of each image, by the number of its boxes."""
        return classify_counts((found.scores >= self.threshold).sum(1))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the encoder as arrays by name, to be stored in a file."""
        return {
            "class names": np.array(self.class_names, dtype=str),
            "threshold": np.array(self.threshold),
            "usual box": self.usual,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "BoxEncoder":
        """Build the encoder from the arrays of `to_arrays`."""
        return cls(tuple(arrays["class names"].tolist()), float(arrays["threshold"]), arrays["usual box"])


def fit_box_encoder(found: FoundBoxes, class_names: tuple[str, ...], threshold: float) -> BoxEncoder:
    """Fit the encoder to the boxes found in the images of a reference."""
    counts = found.scores >= threshold
    usual = describe_boxes(found)[counts].mean(0) if counts.any() else np.zeros(3)
    return BoxEncoder(class_names[:MAX_WATCHED_CLASSES], threshold, usual)


def describe_boxes(found: FoundBoxes) -> FloatArray:
    """Return (n, boxes, 3): log odds of the score, logarithm of the area in pixels and of width over height."""
    width, height = np.maximum(np.asarray(found.boxes[..., 2:], np.float64), 1e-3).transpose(2, 0, 1)
    return np.stack([log_odds(found.scores), np.log(width * height), np.log(width / height)], -1)


def log_odds(scores: AnyArray) -> FloatArray:
    """Return log(p / (1 - p)) of scores."""
    shares = np.clip(np.asarray(scores, np.float64), *SCORE_LIMITS)
    return np.asarray(np.log(shares) - np.log1p(-shares))


def classify_counts(counts: AnyArray) -> NDArray[np.int64]:
    """Return the index of the class in `COUNT_NAMES` for numbers of boxes."""
    return np.searchsorted(COUNT_BOUNDS, counts, "right").astype(np.int64)


def describe_output(name: str, unit: str, cause: str, group: str = "") -> WatchedStatistic:
    """Describe a statistic of the boxes that were found."""
    return WatchedStatistic(
        name=name, source="output", unit=unit, cause_weight=OUTPUT_CAUSE_WEIGHT, cause=cause, group=group or name
    )
