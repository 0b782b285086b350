"""Try corruptions on reference images to measure how the charted features and the accuracy respond."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from equipoise.drift.charts.baseline import Baseline
from equipoise.drift.charts.cell_statistics import ImageFeatures
from equipoise.drift.corruptions import all_corruptions
from equipoise.drift.profiling.reference_examples import concat_conditions
from equipoise.drift.reference.signatures import Signatures
from equipoise.type_aliases import FloatArray

PROFILE_BATCH_IMAGES = 64  # images per call of the model

FeatureExtraction = Callable[[Tensor], ImageFeatures]
"""returns what charts need of a few images, all taken to be of the first condition"""


def measure_corruption_responses(
    extract: FeatureExtraction, pictures: Tensor, labels: NDArray[np.int64], baseline: Baseline
) -> Signatures:
    """Measure the response to every corruption at every size, on labelled reference images."""
    corruptions = [entry for entry in all_corruptions() if pictures.shape[1] == 3 or not entry.requires_color]
    clean_scores, clean_shifts, clean_accuracy = measure_mean_response(extract, pictures, labels, baseline)
    rows = [
        (index, size, *measure_mean_response(extract, entry.apply(pictures, size), labels, baseline))
        for index, entry in enumerate(corruptions)
        for size in entry.sizes
    ]
    kind, size, scores, shifts, accuracy = (np.array(column) for column in zip(*rows, strict=True))
    names = np.array([(entry.cause, entry.detail, entry.unit) for entry in corruptions])
    neutral_sizes = np.array([entry.neutral_size for entry in corruptions])
    return Signatures(
        kind,
        names,
        neutral_sizes,
        size,
        scores - clean_scores,
        shifts - clean_shifts,
        accuracy,
        np.array([clean_accuracy]),
        np.array(len(labels)),
    )


def measure_mean_response(
    extract: FeatureExtraction, pictures: Tensor, labels: NDArray[np.int64], baseline: Baseline
) -> tuple[FloatArray, FloatArray, float]:
    """Return the mean scores, the mean shifts and the accuracy on some images of the first condition.

    They are compared with that condition even where their corruption makes them look like another one.
    """
    parts = [extract(batch.contiguous()) for batch in pictures.split(PROFILE_BATCH_IMAGES)]
    image_features = concat_conditions(parts, [0] * len(parts))
    scores, shifts = (
        differences(image_features).mean(0) for differences in (baseline.usual.scores, baseline.usual.shifts)
    )
    return scores, shifts, float((image_features.predicted_classes == labels).mean())
