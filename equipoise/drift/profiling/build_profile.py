"""Build the reference profile of a bundle of images: everything that requests are compared with later."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.engines import Engine
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.features.confidence import confidence_statistics
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.image_stats import image_statistics
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.drift.profiling.corruption_response import (
    PROFILE_BATCH_IMAGES,
    measure_corruption_responses,
)
from equipoise.drift.profiling.profile_arrays import collect_profile_arrays
from equipoise.drift.profiling.reference_examples import ReferenceExamples, build_profile_from_examples
from equipoise.drift.reference.profile import ReferenceProfile
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
    return collect_profile_arrays(
        lambda: build_reference_profile(predict, reference, temperature, holdout, conditions=conditions)
    )


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
    require_large_images(reference.pictures)
    profile = build_profile_from_examples(
        IMAGE_SCHEMA,
        describe_outputs(reference, temperature),
        tuple(map(str, range(reference.logits.shape[1]))),  # a bundle names them
        describe_outputs(holdout, temperature) if holdout else None,
        [(entry.name, describe_outputs(entry.outputs, temperature, entry.has_labels)) for entry in conditions],
        temperature,
    )
    image_count = corrupted_image_count or affordable_image_count(predict, reference.pictures)
    sample = evenly_spaced_indices(len(reference.labels), image_count)
    images, labels = reference.pictures[torch.from_numpy(sample)], reference.labels[sample]

    def extract(batch: Tensor) -> ImageFeatures:
        logits, features = (output.numpy() for output in predict(batch))
        return profile.baseline.extract_unassigned(batch.numpy(), logits, features)

    return replace(profile, signatures=measure_corruption_responses(extract, images, labels, profile.baseline))


def require_large_images(pictures: Tensor) -> None:
    """Refuse images too small to measure their focus and grain."""
    height, width = pictures.shape[2:]
    if min(height, width) < MIN_IMAGE_SIDE_PIXELS:
        raise EquipoiseError(
            "reference-unusable",
            f"cannot monitor images of {width}x{height} pixels: they are too small",
            f"at least {MIN_IMAGE_SIDE_PIXELS} pixels a side are needed",
        )


def describe_outputs(outputs: LabelledOutputs, temperature: float, has_labels: bool = True) -> ReferenceExamples:
    """Return labelled images as examples of a reference; `has_labels` is false where labels are the predictions."""
    statistics = compute_image_statistics(outputs, temperature)
    return ReferenceExamples(
        statistics, outputs.logits.argmax(1), outputs.features, outputs.labels, has_labels=has_labels
    )


def extract_features(
    outputs: LabelledOutputs, random_fourier: RandomFourierFeatures, temperature: float
) -> ImageFeatures:
    """Compute what charts need of images."""
    statistics = compute_image_statistics(outputs, temperature)
    return ImageFeatures(statistics, outputs.logits.argmax(1), random_fourier(outputs.features))


def compute_image_statistics(outputs: LabelledOutputs, temperature: float) -> NDArray[np.float32]:
    """Compute charted statistics in batches: as floats, all images at once would take four times the memory."""
    parts = [image_statistics(batch.numpy()) for batch in outputs.pictures.split(PROFILE_BATCH_IMAGES)]
    return np.concatenate([np.concatenate(parts), confidence_statistics(outputs.logits, temperature)], 1)


def affordable_image_count(predict: Callable[[Tensor], Any], pictures: Tensor) -> int:
    """Return how many images can be corrupted in every way and predicted within the time budget."""
    predict(pictures[:PROFILE_BATCH_IMAGES])  # the first call takes longer than the others
    started = time.thread_time()  # other programs of a busy machine do not count
    predict(pictures[:PROFILE_BATCH_IMAGES])
    seconds_per_image = (time.thread_time() - started) / min(PROFILE_BATCH_IMAGES, len(pictures))
    affordable = CORRUPTION_BUDGET_SECONDS / (APPROX_CORRUPTION_COUNT * seconds_per_image)
    return int(np.clip(affordable, *CORRUPTED_IMAGES_RANGE))
