"""Build the reference profile of a bundle: everything that requests are compared with later."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.engines import Engine
from equipoise.drift.charts.baseline import ClassStatistics, ImageFeatures, fit_baseline
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_stats import image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures, fit_random_features
from equipoise.drift.profiling.corruption_response import (
    PROFILE_BATCH_IMAGES,
    measure_corruption_responses,
)
from equipoise.drift.reference.false_alarms import count_false_alarms
from equipoise.drift.reference.profile import ARRAY_PREFIX, LabelStatistics, ReferenceProfile
from equipoise.drift.reference.thresholds import calibrate_thresholds
from equipoise.errors import EquipoiseError
from equipoise.spacing import evenly_spaced_indices
from equipoise.type_aliases import AnyArray

CORRUPTION_BUDGET_SECONDS = 20.0  # seconds for trying corruptions on reference images
CORRUPTED_IMAGES_RANGE = (32, 120)  # images on which corruptions are tried: at least, at most
APPROX_CORRUPTION_COUNT = 120  # corruptions and sizes tried, about
MIN_IMAGE_SIDE_PIXELS = 8  # side from which focus, grain and their position can be measured


@dataclass(frozen=True, eq=False)
class LabelledOutputs:
    """Labelled images that the model was not trained on, with its logits and features for them."""

    pictures: Tensor
    logits: AnyArray
    features: AnyArray
    labels: NDArray[np.int64]


def build_profile_arrays(
    predict: Engine, reference: LabelledOutputs, temperature: float, holdout: LabelledOutputs | None = None
) -> dict[str, NDArray[Any]]:
    """Return the arrays for reference.npz; where the reference cannot be used, only the reason why."""
    try:
        profile = build_reference_profile(predict, reference, temperature, holdout)
    except EquipoiseError as error:
        return {f"{ARRAY_PREFIX}why not": np.array(str(error))}
    return profile.to_arrays()


def build_reference_profile(
    predict: Engine,
    reference: LabelledOutputs,
    temperature: float,
    holdout: LabelledOutputs | None = None,
    corrupted_image_count: int | None = None,
) -> ReferenceProfile:
    """Build the profile of a reference; false alarms are counted on the held-out images, if given.

    Corruptions are tried on `corrupted_image_count` images, or else on as many as there is time for.
    """
    height, width = reference.pictures.shape[2:]
    if min(height, width) < MIN_IMAGE_SIDE_PIXELS:
        raise EquipoiseError(
            "reference-unusable",
            f"cannot monitor images of {width}x{height} pixels: they are too small",
            f"at least {MIN_IMAGE_SIDE_PIXELS} pixels a side are needed",
        )
    class_count = reference.logits.shape[1]
    random_fourier = fit_random_features(reference.features)
    features = extract_features(reference, random_fourier, temperature)
    baseline = fit_baseline(features, class_count, random_fourier, temperature)
    image_count = corrupted_image_count or affordable_image_count(predict, reference.pictures)
    sample = evenly_spaced_indices(len(reference.labels), image_count)
    sampled_images, sampled_labels = reference.pictures[torch.from_numpy(sample)], reference.labels[sample]
    calibration = calibrate_thresholds(features, reference.labels, class_count)
    return ReferenceProfile(
        baseline,
        calibration,
        measure_corruption_responses(predict, sampled_images, sampled_labels, baseline),
        fit_label_statistics(features, reference.labels, baseline.usual),
        tuple(map(str, range(class_count))),  # a bundle names them
        count_false_alarms(
            baseline.usual, calibration, extract_features(holdout, random_fourier, temperature), holdout.labels
        )
        if holdout
        else None,
    )


def extract_features(
    outputs: LabelledOutputs, random_fourier: RandomFourierFeatures, temperature: float
) -> ImageFeatures:
    """Compute charted features in batches: as floats, all images at once would take four times the memory."""
    parts = [image_statistics(batch.numpy()) for batch in outputs.pictures.split(PROFILE_BATCH_IMAGES)]
    statistics = np.concatenate([np.concatenate(parts), confidence_statistics(outputs.logits, temperature)], 1)
    return ImageFeatures(statistics, outputs.logits.argmax(1), random_fourier(outputs.features))


def affordable_image_count(predict: Engine, pictures: Tensor) -> int:
    """Return how many images can be corrupted in every way and predicted within the time budget."""
    predict(pictures[:PROFILE_BATCH_IMAGES])  # the first call takes longer than the others
    started = time.perf_counter()
    predict(pictures[:PROFILE_BATCH_IMAGES])
    seconds_per_image = (time.perf_counter() - started) / min(PROFILE_BATCH_IMAGES, len(pictures))
    affordable = CORRUPTION_BUDGET_SECONDS / (APPROX_CORRUPTION_COUNT * seconds_per_image)
    return int(np.clip(affordable, *CORRUPTED_IMAGES_RANGE))


def fit_label_statistics(
    image_features: ImageFeatures, labels: NDArray[np.int64], class_statistics: ClassStatistics
) -> LabelStatistics:
    """Fit statistics by true label, which differ from those by predicted class where the model errs."""
    class_count = len(class_statistics.counts)
    member = np.zeros((class_count, len(labels)))
    member[labels, np.arange(len(labels))] = 1
    label_counts = member.sum(1)
    joint_counts = member @ (image_features.predicted_classes[:, None] == np.arange(class_count))
    divisors = np.maximum(label_counts, 1)[:, None]
    confusion = np.where(label_counts > 0, (joint_counts / divisors).T, np.eye(class_count))
    rest = image_features.fourier_features - class_statistics.waves[image_features.predicted_classes]
    return LabelStatistics(
        label_counts / len(labels),
        confusion,
        member @ class_statistics.scores(image_features) / divisors,
        (member @ rest / divisors).astype("f4"),
    )
