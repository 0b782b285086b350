"""Build the reference profile of a bundle: everything that requests are compared with later."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.engines import Engine
from equipoise.drift.charts.baseline import Baseline, fit_baseline
from equipoise.drift.charts.cell_statistics import ClassStatistics, ImageFeatures
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_stats import image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures, fit_random_features
from equipoise.drift.profiling.corruption_response import (
    PROFILE_BATCH_IMAGES,
    measure_corruption_responses,
)
from equipoise.drift.reference.false_alarms import FalseAlarmCheck, count_false_alarms
from equipoise.drift.reference.profile import ARRAY_PREFIX, ConditionAccuracy, LabelStatistics, ReferenceProfile
from equipoise.drift.reference.simulated_streams import LabelledFeatures
from equipoise.drift.reference.thresholds import Calibration, calibrate_thresholds
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


@dataclass(frozen=True, eq=False)
class KnownCondition:
    """Images of a further condition that the model knows, such as another light, or more images of the first one."""

    name: str
    """name that verdicts report; images between two conditions may share the name of the nearer one, and those named
    `as published` belong to the reference"""
    outputs: LabelledOutputs
    """images with the model's outputs; where `has_labels` is false, the labels are the predicted classes"""
    has_labels: bool = True


def build_profile_arrays(
    predict: Engine,
    reference: LabelledOutputs,
    temperature: float,
    holdout: LabelledOutputs | None = None,
    conditions: Sequence[KnownCondition] = (),
) -> dict[str, NDArray[Any]]:
    """Return the arrays for reference.npz; where the reference cannot be used, only the reason why."""
    try:
        profile = build_reference_profile(predict, reference, temperature, holdout, conditions=conditions)
    except EquipoiseError as error:
        return {f"{ARRAY_PREFIX}why not": np.array(str(error))}
    return profile.to_arrays()


def build_reference_profile(
    predict: Engine,
    reference: LabelledOutputs,
    temperature: float,
    holdout: LabelledOutputs | None = None,
    corrupted_image_count: int | None = None,
    conditions: Sequence[KnownCondition] = (),
) -> ReferenceProfile:
    """Build the profile of a reference and of further conditions that the model knows.

    Conditions that have the name of the first one are taken into the reference.

    False alarms are counted on the held-out images, if given, which are of the same condition as the reference.
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
    conditions = sorted(conditions, key=lambda condition: condition.name != PUBLISHED_CONDITION)
    others = [condition.name for condition in conditions if condition.name != PUBLISHED_CONDITION]
    growth_count = len(conditions) - len(others)
    groups = [reference, *(condition.outputs for condition in conditions)]
    parts = [extract_features(group, random_fourier, temperature) for group in groups]
    features = concat_conditions(parts, [0] * (1 + growth_count) + list(range(1, len(others) + 1)))
    names = PUBLISHED_CONDITION, *others
    baseline = fit_baseline(features, class_count, random_fourier, temperature, names)
    labels = np.concatenate([group.labels for group in groups])
    images = LabelledFeatures(baseline.assign_conditions(features), labels, features.conditions)
    has_labels = [True, *(condition.has_labels for condition in conditions)]
    labelled = images.select(np.flatnonzero(np.repeat(has_labels, [len(part) for part in parts])))
    image_count = corrupted_image_count or affordable_image_count(predict, reference.pictures)
    sample = evenly_spaced_indices(len(reference.labels), image_count)
    sampled_images, sampled_labels = reference.pictures[torch.from_numpy(sample)], reference.labels[sample]
    calibration = calibrate_thresholds(images, class_count)
    return ReferenceProfile(
        baseline,
        calibration,
        measure_corruption_responses(predict, sampled_images, sampled_labels, baseline),
        fit_label_statistics(labelled, baseline.usual, class_count),
        tuple(map(str, range(class_count))),  # a bundle names them
        check_false_alarms(baseline, calibration, holdout) if holdout else None,
        names,
        measure_condition_accuracy(labelled, len(names)),
    )


def concat_conditions(parts: Sequence[ImageFeatures], conditions: Sequence[int] | None = None) -> ImageFeatures:
    """Concatenate features of images, and note the condition of each part: its index, unless `conditions` are given."""
    conditions = range(len(parts)) if conditions is None else conditions
    if len(parts) == 1:
        return parts[0]
    return ImageFeatures(
        np.concatenate([part.statistics for part in parts]),
        np.concatenate([part.predicted_classes for part in parts]),
        np.concatenate([part.fourier_features for part in parts]),
        np.repeat(conditions, [len(part) for part in parts]) if any(conditions) else None,
    )


def check_false_alarms(baseline: Baseline, calibration: Calibration, holdout: LabelledOutputs) -> FalseAlarmCheck:
    """Count false alarms on held-out images of the first condition."""
    features = extract_features(holdout, baseline.random_fourier, baseline.temperature)
    images = LabelledFeatures(baseline.assign_conditions(features), holdout.labels)
    return count_false_alarms(baseline.usual, calibration, images, baseline.layout.condition_count)


def measure_condition_accuracy(labelled: LabelledFeatures, condition_count: int) -> ConditionAccuracy | None:
    """Count the labelled images of each condition and those that the model is right about; None for one condition."""
    if labelled.origins is None:
        return None
    is_correct = labelled.features.predicted_classes == labelled.labels
    return ConditionAccuracy(
        np.bincount(labelled.origins, minlength=condition_count),
        np.bincount(labelled.origins[is_correct], minlength=condition_count),
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
    images: LabelledFeatures, class_statistics: ClassStatistics, class_count: int
) -> LabelStatistics:
    """Fit statistics by true label, which differ from those by predicted class where the model errs."""
    image_features, labels = images.features, images.labels
    member = np.zeros((class_count, len(labels)))
    member[labels, np.arange(len(labels))] = 1
    label_counts = member.sum(1)
    joint_counts = member @ (image_features.predicted_classes[:, None] == np.arange(class_count))
    divisors = np.maximum(label_counts, 1)[:, None]
    confusion = np.where(label_counts > 0, (joint_counts / divisors).T, np.eye(class_count))
    rest = image_features.fourier_features - class_statistics.waves[image_features.cells]
    return LabelStatistics(
        label_counts / len(labels),
        confusion,
        member @ class_statistics.scores(image_features) / divisors,
        (member @ rest / divisors).astype("f4"),
    )
