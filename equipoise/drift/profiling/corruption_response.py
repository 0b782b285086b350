"""Tries on a reference's pictures what may happen to them later."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from equipoise.drift.charts.baseline import Baseline
from equipoise.drift.corruptions import all_corruptions
from equipoise.drift.reference.signatures import Signatures
from equipoise.type_aliases import FloatArray

PredictFunction = Callable[[Tensor], tuple[Tensor, Tensor]]

PROFILE_BATCH_IMAGES = 64  # pictures


def measure_corruption_responses(
    predict: PredictFunction, pictures: Tensor, labels: NDArray[np.int64], baseline: Baseline
) -> Signatures:
    """On some pictures of the reference, whose labels are known."""
    tried = [kind for kind in all_corruptions() if pictures.shape[1] == 3 or not kind.requires_color]
    before, plain, *clean = measure_mean_response(predict, pictures, labels, baseline)
    rows = [
        (place, size, *measure_mean_response(predict, kind.apply(pictures, size), labels, baseline))
        for place, kind in enumerate(tried)
        for size in kind.sizes
    ]
    kind, size, scores, shifts, accuracy, confidence = (np.array(column) for column in zip(*rows, strict=True))
    names = np.array([(one.cause, one.detail, one.unit) for one in tried])
    none = np.array([one.neutral_size for one in tried])
    return Signatures(
        kind,
        names,
        none,
        size,
        scores - before,
        shifts - plain,
        accuracy,
        confidence,
        np.array(clean),
        np.array(len(labels)),
    )


def measure_mean_response(
    predict: PredictFunction, pictures: Tensor, labels: NDArray[np.int64], baseline: Baseline
) -> tuple[FloatArray, FloatArray, float, float]:
    """Mean scores and shifts of pictures, and how well the model does on them, in truth and by what it says."""
    parts = [tuple(one.numpy() for one in predict(some.contiguous())) for some in pictures.split(PROFILE_BATCH_IMAGES)]
    logits, features = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    seen = baseline.extract_features(pictures.numpy(), logits, features)
    scores, shifts = (each(seen).mean(0) for each in (baseline.usual.scores, baseline.usual.shifts))
    says = softmax(logits / baseline.temperature, 1).max(1).mean()
    return scores, shifts, float((logits.argmax(1) == labels).mean()), float(says)
