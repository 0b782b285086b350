"""The judgement of a set of pictures at once: each chart a test, all of them together wrong once in a hundred sets."""

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from equipoise.drift.charts.baseline import CHARTED_FEATURES, ImageFeatures, shrunk_class_means
from equipoise.drift.diagnosis.accuracy_estimate import estimate_accuracy
from equipoise.drift.diagnosis.root_cause import Cause, diagnose_window
from equipoise.drift.diagnosis.stream_verdict import chart_entry
from equipoise.drift.diagnosis.window import Window, window_from_sums
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.density_ratio import estimate_density_ratio
from equipoise.drift.stats.label_shift import residual_shift_test
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test
from equipoise.type_aliases import AnyArray

MIN_DATASET_IMAGES = 30  # pictures about which anything is said
ALPHA = 0.01  # of sets without drift that are called drifted
TEST_FAMILY_COUNT = 4  # families of charts that share it
PERMUTATION_COUNT = 2000
MAX_EXAMPLE_IMAGES = 12  # pictures that show what changed
MAX_WEIGHTED_REFERENCE_IMAGES = 1000  # pictures of the reference


def compute_dataset_verdict(
    profile: ReferenceProfile,
    image_features: ImageFeatures,
    features: AnyArray,
    reference_features: AnyArray,
    reference_predictions: NDArray[np.int64],
) -> dict[str, Any]:
    """A verdict on pictures, their features beside those of the reference and what that was called."""
    if len(image_features) < MIN_DATASET_IMAGES:
        few = f"{len(image_features)} pictures were given: {MIN_DATASET_IMAGES} are needed"
        return build_verdict("unknown", few, len(image_features), None, [], None)
    found = window_from_sums(profile, profile.baseline.sum_features(image_features))
    charts = [*statistic_charts(found), distribution_chart(profile, image_features), class_share_chart(profile, found)]
    charts.append(feature_chart(image_features, features, reference_features, reference_predictions, len(found.counts)))
    high = {one["name"] for one in charts if one["value"] >= one["threshold"]}
    why = diagnose_window(found, "classes" in high) if high else None
    if (
        why
        and why.name == "label shift"
        and not is_label_shift_sufficient(image_features, features, reference_features, reference_predictions)
    ):
        why = Cause("features", "classes come in other shares, and that does not explain how features differ")
    estimate = estimate_accuracy(found, why)
    sentence = f"{why.name}: {why.why}" if why else f"{len(image_features)} pictures look like the reference"
    charts.sort(key=lambda one: one["threshold"] - one["value"])
    counts = found.counts.astype(int).tolist()
    usual = profile.baseline.usual.counts.astype(int).tolist()
    more = {
        "classes": counts,
        "usual": usual,
        "support": measure_reference_support(reference_features, features) if high else None,
    }
    more["moved"] = most_shifted_images(profile, image_features, found) if high else []
    return build_verdict("drift" if high else "ok", sentence, len(image_features), why, charts, estimate) | more


def most_shifted_images(profile: ReferenceProfile, image_features: ImageFeatures, window: Window) -> list[int]:
    """Places of the pictures that lie farthest in the direction in which all of them have moved, the farthest first."""
    along = profile.baseline.usual.scores(image_features) @ window.scores
    places: list[int] = np.argsort(-along, kind="stable")[:MAX_EXAMPLE_IMAGES].tolist()
    return places


def measure_reference_support(reference_features: AnyArray, features: AnyArray) -> dict[str, Any]:
    """Which share of the reference is worth anything for such pictures: of little, no weighting makes enough."""
    some = reference_features[
        np.linspace(0, len(reference_features) - 1, min(len(reference_features), MAX_WEIGHTED_REFERENCE_IMAGES)).astype(
            int
        )
    ]
    found = estimate_density_ratio(some, features)
    return {"share": found.effective_sample_size / len(some), "moved": found.is_outside_reference}


def build_verdict(
    state: str, reason: str, image_count: int, cause: Cause | None, charts: list[Any], estimate: Any
) -> dict[str, Any]:
    """A verdict as plain data."""
    return {
        "state": state,
        "why": reason,
        "images": image_count,
        "cause": cause.name if cause else None,
        "effects": [asdict(one) for one in cause.effects] if cause else [],
        "charts": charts,
        "accuracy": asdict(estimate) if estimate else "unknown",
    }


def statistic_charts(window: Window) -> list[dict[str, Any]]:
    """Each figure's mean against what is usual for the classes that were seen."""
    z = window.scores * np.sqrt(window.effective_sample_size)
    surprise = -(np.log(2) + norm.logsf(np.abs(z))) / np.log(10)
    threshold = float(-np.log10(ALPHA / TEST_FAMILY_COUNT / len(CHARTED_FEATURES)))
    return [
        chart_entry(window, place, float(max(surprise[place], 0)), threshold) for place in range(len(CHARTED_FEATURES))
    ]


def distribution_chart(profile: ReferenceProfile, image_features: ImageFeatures) -> dict[str, Any]:
    """The distribution of each figure, whose mean may well be as it was: the one that differs most."""
    tried = [
        place for place, name in enumerate(CHARTED_FEATURES) if name != "strange"
    ]  # a yes or no: its score tells the class
    scores = profile.baseline.usual.scores(image_features)[:, tried].astype(np.float32)
    test = ks_test_by_column(profile.baseline.ranked[tried].T, scores)
    place = int(test.p_value.argmin())
    unit = f"the largest gap between distributions, of {CHARTED_FEATURES[tried[place]]}"
    effect = {"unit": unit, "value": float(test.statistic[place]), "low": None, "high": None}
    threshold = float(-np.log10(ALPHA / TEST_FAMILY_COUNT / len(tried)))
    return {"name": "shape", "value": neg_log10_p(float(test.p_value[place])), "threshold": threshold, "effect": effect}


def is_label_shift_sufficient(
    image_features: ImageFeatures,
    features: AnyArray,
    reference_features: AnyArray,
    reference_predictions: NDArray[np.int64],
) -> bool:
    """Whether features are as those of a reference with the same shares of classes."""
    count = int(max(image_features.predicted_classes.max(), reference_predictions.max())) + 1
    now, before = (
        np.bincount(one, minlength=count) / len(one)
        for one in (image_features.predicted_classes, reference_predictions)
    )
    test = residual_shift_test(
        reference_features, reference_predictions, now / np.maximum(before, 1e-9), features, PERMUTATION_COUNT
    )
    return test.p_value >= ALPHA


def class_share_chart(profile: ReferenceProfile, window: Window) -> dict[str, Any]:
    """The shares of predicted classes."""
    counts = profile.baseline.usual.counts.astype(np.int64)
    test = chi_squared_test(counts, window.counts.astype(np.int64))
    shares = profile.baseline.usual.counts / profile.baseline.usual.counts.sum()
    now = window.counts / window.image_count
    place = int(np.abs(now - shares).argmax())
    reach = 1.96 * float(np.sqrt(max(now[place] * (1 - now[place]), 1 / window.image_count) / window.image_count))
    effect = {
        "unit": "of the pictures",
        "value": float(now[place]),
        "low": max(float(now[place]) - reach, 0.0),
        "high": min(float(now[place]) + reach, 1.0),
        "class": place,
        "reference": float(shares[place]),
    }
    return {
        "name": "classes",
        "value": neg_log10_p(test.p_value),
        "threshold": float(-np.log10(ALPHA / TEST_FAMILY_COUNT)),
        "effect": effect,
    }


def feature_chart(
    image_features: ImageFeatures,
    features: AnyArray,
    reference_features: AnyArray,
    reference_predictions: NDArray[np.int64],
    class_count: int,
) -> dict[str, Any]:
    """What is left of the features without the mean of their class, by their discrepancy."""
    member = np.zeros((class_count, len(reference_predictions)))
    member[reference_predictions, np.arange(len(reference_predictions))] = 1
    mean = shrunk_class_means(member, reference_features.astype(np.float64))
    test = mmd_permutation_test(
        reference_features - mean[reference_predictions],
        features - mean[image_features.predicted_classes],
        PERMUTATION_COUNT,
    )
    effect = {"unit": "squared discrepancy", "value": float(test.statistic), "low": None, "high": None}
    return {
        "name": "features",
        "value": neg_log10_p(test.p_value),
        "threshold": float(-np.log10(ALPHA / TEST_FAMILY_COUNT)),
        "effect": effect,
    }


def neg_log10_p(p: float) -> float:
    """The decimal logarithm of one in so many."""
    return float(-np.log10(max(p, 1e-300)))
