"""Makes of a reference's pictures all that requests are judged by later."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.drift.charts.baseline import ClassStatistics, ImageFeatures, fit_baseline
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_stats import image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures, fit_random_features
from equipoise.drift.profiling.corruption_response import (
    PROFILE_BATCH_IMAGES,
    PredictFunction,
    measure_corruption_responses,
)
from equipoise.drift.reference.false_alarms import count_false_alarms
from equipoise.drift.reference.profile import ARRAY_PREFIX, LabelStatistics, ReferenceProfile
from equipoise.drift.reference.thresholds import calibrate_thresholds
from equipoise.type_aliases import AnyArray

CORRUPTION_BUDGET_SECONDS = 20.0  # for trying what can happen to the pictures
CORRUPTED_IMAGES_RANGE = (32, 120)  # pictures: at least, at most
APPROX_CORRUPTION_COUNT = 120  # about so many are tried
MIN_IMAGE_SIDE_PIXELS = 8  # pixels of a side from which focus, grain and where they lie can be told


@dataclass(frozen=True, eq=False)
class LabelledOutputs:
    """Pictures that the model has not learned from, what it says of them, and what they show."""

    pictures: Tensor
    logits: AnyArray
    features: AnyArray
    labels: NDArray[np.int64]


def build_profile_arrays(
    predict: PredictFunction, reference: LabelledOutputs, temperature: float, holdout: LabelledOutputs | None = None
) -> dict[str, NDArray[Any]]:
    """For reference.npz; of a reference that is too small, the reason why nothing can be told by it."""
    try:
        found = build_reference_profile(predict, reference, temperature, holdout)
    except ValueError as error:
        return {f"{ARRAY_PREFIX}why not": np.array(str(error))}
    return found.to_arrays()


def build_reference_profile(
    predict: PredictFunction, reference: LabelledOutputs, temperature: float, holdout: LabelledOutputs | None = None
) -> ReferenceProfile:
    """What a reference tells; on pictures kept apart, if given, false alarms are counted."""
    height, width = reference.pictures.shape[2:]
    if min(height, width) < MIN_IMAGE_SIDE_PIXELS:
        raise ValueError(
            f"pictures of {width}x{height} are too small to be watched: {MIN_IMAGE_SIDE_PIXELS} pixels are needed"
        )
    classes = reference.logits.shape[1]
    directions = fit_random_features(reference.features)
    seen = extract_features(reference, directions, temperature)
    held = fit_baseline(seen, classes, directions, temperature)
    some = evenly_spaced_indices(len(reference.labels), affordable_image_count(predict, reference.pictures))
    found = calibrate_thresholds(seen, reference.labels, classes)
    return ReferenceProfile(
        held,
        found,
        measure_corruption_responses(predict, reference.pictures[torch.from_numpy(some)], reference.labels[some], held),
        fit_label_statistics(seen, reference.labels, held.usual),
        count_false_alarms(held.usual, found, extract_features(holdout, directions, temperature), holdout.labels)
        if holdout
        else None,
    )


def extract_features(
    outputs: LabelledOutputs, random_fourier: RandomFourierFeatures, temperature: float
) -> ImageFeatures:
    """A few at a time: as numbers, pictures take four times the room."""
    parts = [image_statistics(few.numpy()) for few in outputs.pictures.split(PROFILE_BATCH_IMAGES)]
    figures = np.concatenate([np.concatenate(parts), confidence_statistics(outputs.logits, temperature)], 1)
    return ImageFeatures(figures, outputs.logits.argmax(1), random_fourier(outputs.features))


def affordable_image_count(predict: PredictFunction, pictures: Tensor) -> int:
    """How many pictures can be changed in every way and answered in the time there is."""
    begun = time.perf_counter()
    predict(pictures[:PROFILE_BATCH_IMAGES])
    each = (time.perf_counter() - begun) / min(PROFILE_BATCH_IMAGES, len(pictures))
    return int(np.clip(CORRUPTION_BUDGET_SECONDS / (APPROX_CORRUPTION_COUNT * each), *CORRUPTED_IMAGES_RANGE))


def evenly_spaced_indices(count: int, max_count: int) -> NDArray[np.int64]:
    """Up to `most` places."""
    return np.linspace(0, count - 1, min(count, max_count)).astype(np.int64)


def fit_label_statistics(
    image_features: ImageFeatures, labels: NDArray[np.int64], class_statistics: ClassStatistics
) -> LabelStatistics:
    """By what pictures show, which differs from what they are called where the model errs."""
    classes = len(class_statistics.counts)
    member = np.zeros((classes, len(labels)))
    member[labels, np.arange(len(labels))] = 1
    shown = member.sum(1)
    table = member @ (image_features.predicted_classes[:, None] == np.arange(classes))
    each = np.maximum(shown, 1)[:, None]
    confusion = np.where(shown > 0, (table / each).T, np.eye(classes))
    rest = image_features.fourier_features - class_statistics.waves[image_features.predicted_classes]
    return LabelStatistics(
        shown / len(labels),
        confusion,
        member @ class_statistics.scores(image_features) / each,
        (member @ rest / each).astype("f4"),
    )
