"""Judge a set of images at once: each chart is a test, and together they call 1 in 100 sets without drift drifted."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from equipoise.drift.charts.baseline import CHARTED_FEATURES, ImageFeatures, shrunk_class_means
from equipoise.drift.diagnosis.accuracy_estimate import estimate_accuracy
from equipoise.drift.diagnosis.root_cause import Cause, diagnose_window
from equipoise.drift.diagnosis.stream_verdict import feature_reading, list_corruption_effects, name_counts
from equipoise.drift.diagnosis.verdict import ChartEffect, ChartReading, DatasetVerdict, ReferenceSupport
from equipoise.drift.diagnosis.window import Window, window_from_sums
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.density_ratio import estimate_density_ratio
from equipoise.drift.stats.label_shift import residual_shift_test
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test
from equipoise.proportions import wilson_interval
from equipoise.spacing import evenly_spaced_indices
from equipoise.type_aliases import AnyArray

MIN_DATASET_IMAGES = 30  # images: with fewer the verdict is `unknown`
ALPHA = 0.01  # share of image sets without drift that are called drifted
TEST_FAMILY_COUNT = 4  # families of charts among which alpha is divided
PERMUTATION_COUNT = 2000  # permutations of a permutation test
MAX_EXAMPLE_IMAGES = 12  # images shown as examples of what changed
MAX_WEIGHTED_REFERENCE_IMAGES = 1000  # reference images given density-ratio weights


def compute_dataset_verdict(
    profile: ReferenceProfile,
    image_features: ImageFeatures,
    features: AnyArray,
    reference_features: AnyArray,
    reference_predictions: NDArray[np.int64],
    image_names: Sequence[str] | None = None,
    permutation_count: int = PERMUTATION_COUNT,
) -> DatasetVerdict:
    """Return the verdict on a set of images.

    Takes the images' charted and model features, and the reference's model features and predicted classes. Images are
    called by their indices if not given names.
    """
    if len(image_features) < MIN_DATASET_IMAGES:
        reason = f"{len(image_features)} images were given; at least {MIN_DATASET_IMAGES} are needed"
        return DatasetVerdict(state="unknown", why=reason, images=len(image_features))
    window = window_from_sums(profile, profile.baseline.sum_features(image_features))
    model_outputs = image_features, features, reference_features, reference_predictions
    charts = [
        *statistic_charts(window),
        distribution_chart(profile, image_features),
        class_share_chart(profile, window),
        feature_chart(*model_outputs, len(window.counts), permutation_count),
    ]
    alarmed = {chart.name for chart in charts if chart.value >= chart.threshold}
    cause = diagnose_window(window, "classes" in alarmed) if alarmed else None
    if cause and cause.name == "label shift" and not is_label_shift_sufficient(*model_outputs, permutation_count):
        why = "the shares of the classes have changed, but that does not explain how the features differ"
        cause = Cause("features", why)
    moved = most_shifted_images(profile, image_features, window) if alarmed else []
    return DatasetVerdict(
        state="drift" if alarmed else "ok",
        why=f"{cause.name}: {cause.why}" if cause else f"{len(image_features)} images look like the reference",
        images=len(image_features),
        cause=cause.name if cause else None,
        effects=list_corruption_effects(cause),
        charts=tuple(sorted(charts, key=lambda chart: chart.threshold - chart.value)),
        accuracy=estimate_accuracy(window, cause) or "unknown",
        classes=name_counts(profile, window.counts),
        usual=name_counts(profile, profile.baseline.usual.counts),
        support=measure_reference_support(reference_features, features) if alarmed else None,
        moved=tuple(image_names[index] if image_names else str(index) for index in moved),
    )


def most_shifted_images(profile: ReferenceProfile, image_features: ImageFeatures, window: Window) -> list[int]:
    """Return indices of the images that lie farthest in the direction of the window's shift, the farthest first."""
    along = profile.baseline.usual.scores(image_features) @ window.scores
    indices: list[int] = np.argsort(-along, kind="stable")[:MAX_EXAMPLE_IMAGES].tolist()
    return indices


def measure_reference_support(reference_features: AnyArray, features: AnyArray) -> ReferenceSupport:
    """Measure which share of the reference is effectively like the given images.

    If it is small, no weighting of the reference can stand for these images.
    """
    sample = reference_features[evenly_spaced_indices(len(reference_features), MAX_WEIGHTED_REFERENCE_IMAGES)]
    ratio = estimate_density_ratio(sample, features)
    return ReferenceSupport(
        share=float(ratio.effective_sample_size / len(sample)), moved=bool(ratio.is_outside_reference)
    )


def statistic_charts(window: Window) -> list[ChartReading]:
    """Test the mean of each charted feature against what is usual for the predicted classes."""
    z = window.scores * np.sqrt(window.effective_sample_size)
    neg_log_p = -(np.log(2) + norm.logsf(np.abs(z))) / np.log(10)
    threshold = float(-np.log10(ALPHA / TEST_FAMILY_COUNT / len(CHARTED_FEATURES)))
    return [
        feature_reading(window, index, float(max(neg_log_p[index], 0)), threshold)
        for index in range(len(CHARTED_FEATURES))
    ]


def distribution_chart(profile: ReferenceProfile, image_features: ImageFeatures) -> ChartReading:
    """Test the distribution of each charted feature, which may differ where the mean does not; chart the worst."""
    tested = [
        index for index, name in enumerate(CHARTED_FEATURES) if name != "strange"
    ]  # it is 0 or 1: its score only tells the class
    scores = profile.baseline.usual.scores(image_features)[:, tested].astype(np.float32)
    test = ks_test_by_column(profile.baseline.ranked[tested].T, scores)
    column = int(test.p_value.argmin())
    unit = f"largest gap between the distributions of {CHARTED_FEATURES[tested[column]]}"
    effect = ChartEffect(unit=unit, value=float(test.statistic[column]), low=None, high=None)
    threshold = float(-np.log10(ALPHA / TEST_FAMILY_COUNT / len(tested)))
    value = neg_log10_p(float(test.p_value[column]))
    return ChartReading(name="shape", value=value, threshold=threshold, effect=effect)


def is_label_shift_sufficient(
    image_features: ImageFeatures,
    features: AnyArray,
    reference_features: AnyArray,
    reference_predictions: NDArray[np.int64],
    permutation_count: int,
) -> bool:
    """Return whether new class shares alone explain the features: a reference with these shares has the same ones."""
    count = int(max(image_features.predicted_classes.max(), reference_predictions.max())) + 1
    current, before = (
        np.bincount(classes, minlength=count) / len(classes)
        for classes in (image_features.predicted_classes, reference_predictions)
    )
    test = residual_shift_test(
        reference_features, reference_predictions, current / np.maximum(before, 1e-9), features, permutation_count
    )
    return test.p_value >= ALPHA


def class_share_chart(profile: ReferenceProfile, window: Window) -> ChartReading:
    """Test the shares of the predicted classes; the effect is the class whose share moved most."""
    counts = profile.baseline.usual.counts.astype(np.int64)
    test = chi_squared_test(counts, window.counts.astype(np.int64))
    shares = profile.baseline.usual.counts / profile.baseline.usual.counts.sum()
    current_shares = window.counts / window.image_count
    index = int(np.abs(current_shares - shares).argmax())
    share = float(current_shares[index])
    low, high = wilson_interval(share, window.image_count)
    effect = ChartEffect(
        unit="of the images",
        value=share,
        low=low,
        high=high,
        class_name=profile.class_names[index],
        reference=float(shares[index]),
    )
    return ChartReading(
        name="classes",
        value=neg_log10_p(test.p_value),
        threshold=float(-np.log10(ALPHA / TEST_FAMILY_COUNT)),
        effect=effect,
    )


def feature_chart(
    image_features: ImageFeatures,
    features: AnyArray,
    reference_features: AnyArray,
    reference_predictions: NDArray[np.int64],
    class_count: int,
    permutation_count: int,
) -> ChartReading:
    """Test the features, less the mean of their predicted class, by their maximum mean discrepancy."""
    member = np.zeros((class_count, len(reference_predictions)))
    member[reference_predictions, np.arange(len(reference_predictions))] = 1
    mean = shrunk_class_means(member, reference_features.astype(np.float64))
    test = mmd_permutation_test(
        reference_features - mean[reference_predictions],
        features - mean[image_features.predicted_classes],
        permutation_count,
    )
    effect = ChartEffect(unit="squared maximum mean discrepancy", value=float(test.statistic), low=None, high=None)
    return ChartReading(
        name="features",
        value=neg_log10_p(test.p_value),
        threshold=float(-np.log10(ALPHA / TEST_FAMILY_COUNT)),
        effect=effect,
    )


def neg_log10_p(p: float) -> float:
    """Return the negative decimal logarithm of a p-value: 3 for 1 in 1,000."""
    return float(-np.log10(max(p, 1e-300)))
