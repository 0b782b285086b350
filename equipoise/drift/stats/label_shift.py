"""Label shift: class shares change, class appearance does not. New priors correct it without training."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.stats.two_sample_tests import TestResult, mmd_permutation_test, validate_samples
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray, IntArray

MIN_SINGULAR_VALUE = 0.1  # of the confusion: below, errors of predicted shares grow tenfold or more in the priors
RIDGE_STRENGTH = 1e-2  # towards the old prior, where the confusion cannot be inverted


@dataclass(frozen=True, eq=False)
class LabelShift:
    """Estimated change of class shares, and how well it could be estimated."""

    weights: NDArray[np.float64]
    """(classes,) new prior over old prior"""
    min_singular_value: float
    """smallest singular value of the confusion that the weights come from"""

    @property
    def is_identifiable(self) -> bool:
        """Return whether the model tells its classes apart well enough (1: perfect, 0: confuses two classes)."""
        return self.min_singular_value >= MIN_SINGULAR_VALUE


def estimate_label_shift(confusion: AnyArray, prior: AnyArray, predicted_counts: AnyArray) -> LabelShift:
    """Estimate new prior over old by class from the predicted classes of a window (Lipton, Wang and Smola, 2018).

    Column j of `confusion` holds the shares of predicted classes for class j; `predicted_counts` are the counts, or
    shares, in the window. Needs no calibration. Classes that the model cannot tell apart keep weights near 1.
    """
    old = _validate_prior(prior)
    predicted_counts = np.asarray(predicted_counts, np.float64)
    if confusion.shape != (len(old), len(old)) or predicted_counts.shape != old.shape:
        raise ValueError(
            f"the confusion has shape {confusion.shape} and the predicted counts "
            f"{predicted_counts.shape}; give both for {len(old)} classes"
        )
    if not (confusion >= 0).all() or not np.allclose(confusion.sum(0), 1, atol=1e-3):
        raise ValueError(
            "the confusion's columns do not sum to 1; give the share of each predicted class (row) for each true class"
        )
    if not (predicted_counts >= 0).all() or not 0 < predicted_counts.sum() < np.inf:
        raise ValueError(
            f"the predicted counts of the window are {predicted_counts}; give one count per class, not all 0"
        )
    singular = float(np.linalg.svd(confusion, compute_uv=False)[-1])
    new = np.maximum(
        old + _prior_change(confusion, predicted_counts / predicted_counts.sum() - confusion @ old, singular), 0
    )
    return LabelShift(new / new.sum() / old, singular)


def residual_shift_test(
    reference_features: AnyArray,
    reference_labels: IntArray,
    weights: AnyArray,
    window_features: AnyArray,
    permutations: int = 1000,
    seed: int = 0,
) -> TestResult:
    """Test whether a window differs from the reference at equal class shares; a large p means label shift alone.

    The reference is thinned, not sampled with replacement: identical copies of examples would look like drift.
    """
    validate_samples(reference_features, window_features)
    kept = _thin_to_weights(reference_labels, np.asarray(weights, np.float64), len(reference_features), seed)
    if len(kept) < 2:
        raise EquipoiseError(
            "dataset-invalid",
            f"the weights leave {len(kept)} reference examples",
            "give more of the classes that became more frequent",
        )
    return mmd_permutation_test(reference_features[kept], window_features, permutations, seed)


def _validate_prior(prior: AnyArray) -> NDArray[np.float64]:
    shares = np.asarray(prior, np.float64)
    if shares.ndim != 1 or not len(shares) or not (shares > 0).all() or not np.isclose(shares.sum(), 1, atol=1e-3):
        raise ValueError(f"the prior is {prior}; give a share above 0 per class, 1 in all; omit unseen classes")
    return np.asarray(shares / shares.sum())


def _prior_change(confusion: AnyArray, prediction_gap: AnyArray, min_singular_value: float) -> NDArray[np.float64]:
    """Return the change of the prior that explains the gap in predicted shares."""
    if min_singular_value >= MIN_SINGULAR_VALUE:
        return np.asarray(np.linalg.solve(confusion, prediction_gap))
    return np.asarray(
        np.linalg.solve(
            confusion.T @ confusion + RIDGE_STRENGTH * np.eye(len(prediction_gap)), confusion.T @ prediction_gap
        )
    )


def _thin_to_weights(labels: IntArray, weights: NDArray[np.float64], example_count: int, seed: int) -> NDArray[np.intp]:
    """Return the indices of the largest subset of examples with the weighted class shares."""
    if labels.shape != (example_count,) or labels.min() < 0 or labels.max() >= len(weights):
        raise ValueError(
            f"{labels.size} labels for {example_count} examples and {len(weights)} weights; "
            "give one class to each example and a weight for each class"
        )
    largest = weights[np.unique(labels)].max()
    if not (weights >= 0).all() or not 0 < largest < np.inf:
        raise EquipoiseError(  # a window may hold no class that the reference has
            "dataset-invalid",
            f"the weights are {weights}",
            "give finite ones, above 0 for a class that the reference has",
        )
    rng = np.random.Generator(np.random.Philox(key=seed))
    members = [rng.permutation(np.flatnonzero(labels == index)) for index in range(len(weights))]
    kept = [indices[: round(len(indices) * w / largest)] for indices, w in zip(members, weights, strict=True)]
    return np.concatenate(kept).astype(np.intp)
