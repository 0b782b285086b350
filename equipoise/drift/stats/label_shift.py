"""Label shift: classes come in other shares, and what each looks like stays. Then priors change, and no weight."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from equipoise.drift.stats.two_sample_tests import TestResult, mmd_permutation_test, validate_samples
from equipoise.type_aliases import AnyArray, IntArray

MAX_EM_ITERATIONS = 2000  # rounds of expectation and maximization
EM_TOLERANCE = 1e-7  # by which a prior changes in a round at the end
MIN_SINGULAR_VALUE = 0.1  # of the confusion: below, errors of the calls grow tenfold or more in the priors
RIDGE_STRENGTH = 1e-2  # towards the old prior, where the confusion cannot be inverted


@dataclass(frozen=True, eq=False)
class LabelShift:
    """New prior over old by class, and the smallest singular value of the confusion it came from."""

    weights: NDArray[np.float64]
    min_singular_value: float

    @property
    def is_identifiable(self) -> bool:
        """Whether the model tells its classes apart well enough: 1 is a perfect model, 0 one that mixes up two."""
        return self.min_singular_value >= MIN_SINGULAR_VALUE


def estimate_label_shift_em(
    posteriors: AnyArray, prior: AnyArray, max_iterations: int = MAX_EM_ITERATIONS
) -> NDArray[np.float64]:
    """New prior over old by class, from calibrated posteriors of a window (Saerens, Latinne and Decaestecker, 2002).

    Right if only the shares of the classes have changed. Posteriors that are too sure make the weights too large.
    """
    old = _validate_prior(prior)
    if posteriors.ndim != 2 or not len(posteriors) or posteriors.shape[1] != len(old):
        raise ValueError(f"posteriors have shape {posteriors.shape}; give rows of {len(old)} classes, as the prior has")
    if not (posteriors >= 0).all() or not np.allclose(posteriors.sum(1), 1, atol=1e-3):
        raise ValueError("posteriors are not chances that sum to 1 in each row; give the softmax of calibrated scores")
    new = old
    for _ in range(max_iterations):
        before, likely = new, posteriors * (new / old)
        new = (likely / likely.sum(1, keepdims=True)).mean(0)
        if np.abs(new - before).max() < EM_TOLERANCE:
            break
    return new / old


def estimate_label_shift(confusion: AnyArray, prior: AnyArray, predicted_counts: AnyArray) -> LabelShift:
    """New prior over old by class, from what a window is called (Lipton, Wang and Smola, 2018).

    Column j of `confusion` holds how often class j is called each class; `called` is the share, or the count, of each
    in the window. Needs no calibration. Where two classes are called alike, their weights stay near 1.
    """
    old = _validate_prior(prior)
    predicted_counts = np.asarray(predicted_counts, np.float64)
    if confusion.shape != (len(old), len(old)) or predicted_counts.shape != old.shape:
        raise ValueError(
            f"the confusion has shape {confusion.shape} and the calls "
            f"{predicted_counts.shape}; give both for {len(old)} classes"
        )
    if not (confusion >= 0).all() or not np.allclose(confusion.sum(0), 1, atol=1e-3):
        raise ValueError("the confusion's columns do not sum to 1; give the share of each class called each class")
    if not (predicted_counts >= 0).all() or not 0 < predicted_counts.sum() < np.inf:
        raise ValueError(
            f"the window was called {predicted_counts}; give how often it was called each class, not all 0"
        )
    singular = float(np.linalg.svd(confusion, compute_uv=False)[-1])
    new = np.maximum(
        old + _prior_change(confusion, predicted_counts / predicted_counts.sum() - confusion @ old, singular), 0
    )
    return LabelShift(new / new.sum() / old, singular)


def adapt_posteriors(logits: AnyArray, temperature: float, weights: AnyArray) -> NDArray[np.float64]:
    """Posteriors under the new shares of the classes; a class of weight 0 has none."""
    weights = np.asarray(weights, np.float64)
    if logits.ndim != 2 or not len(logits) or weights.shape != logits.shape[1:] or not np.isfinite(logits).all():
        raise ValueError(
            f"scores have shape {logits.shape} for {weights.size} weights; give finite rows, a score for each"
        )
    if not (weights >= 0).all() or not 0 < weights.sum() < np.inf or not 0 < temperature < np.inf:
        raise ValueError(f"temperature {temperature} or weights {weights} cannot be used; give finite ones above 0")
    with np.errstate(divide="ignore"):
        return np.asarray(softmax(logits.astype(np.float64) / temperature + np.log(weights), 1))


def residual_shift_test(
    reference_features: AnyArray,
    reference_labels: IntArray,
    weights: AnyArray,
    window_features: AnyArray,
    permutations: int = 1000,
    seed: int = 0,
) -> TestResult:
    """Whether a window is still apart once the reference has its shares of classes: a large p is label shift alone.

    The reference is thinned, not drawn with repetition: an example and its copy would be alike, and look like drift.
    """
    validate_samples(reference_features, window_features)
    kept = _thin_to_weights(reference_labels, np.asarray(weights, np.float64), len(reference_features), seed)
    if len(kept) < 2:
        raise ValueError(f"the weights leave {len(kept)} reference examples; give more of the classes that have grown")
    return mmd_permutation_test(reference_features[kept], window_features, permutations, seed)


def _validate_prior(prior: AnyArray) -> NDArray[np.float64]:
    found = np.asarray(prior, np.float64)
    if found.ndim != 1 or not len(found) or not (found > 0).all() or not np.isclose(found.sum(), 1, atol=1e-3):
        raise ValueError(f"the prior is {prior}; give a share above 0 for each class, 1 in all, without unseen classes")
    return np.asarray(found / found.sum())


def _prior_change(confusion: AnyArray, prediction_gap: AnyArray, min_singular_value: float) -> NDArray[np.float64]:
    """Of the prior, that closes the gap in the calls."""
    if min_singular_value >= MIN_SINGULAR_VALUE:
        return np.asarray(np.linalg.solve(confusion, prediction_gap))
    return np.asarray(
        np.linalg.solve(
            confusion.T @ confusion + RIDGE_STRENGTH * np.eye(len(prediction_gap)), confusion.T @ prediction_gap
        )
    )


def _thin_to_weights(labels: IntArray, weights: NDArray[np.float64], example_count: int, seed: int) -> NDArray[np.intp]:
    """Places of as many examples as there are with classes in the weighted shares, none twice."""
    if labels.shape != (example_count,) or labels.min() < 0 or labels.max() >= len(weights):
        raise ValueError(
            f"{labels.size} labels for {example_count} examples and {len(weights)} weights; give one class to each"
        )
    largest = weights[np.unique(labels)].max()
    if not (weights >= 0).all() or not 0 < largest < np.inf:
        raise ValueError(f"the weights are {weights}; give finite ones, above 0 for a class that the reference has")
    rng = np.random.Generator(np.random.Philox(key=seed))
    places = [rng.permutation(np.flatnonzero(labels == one)) for one in range(len(weights))]
    kept = [of[: round(len(of) * w / largest)] for of, w in zip(places, weights, strict=True)]
    return np.concatenate(kept).astype(np.intp)
