"""Judge a set of images at once: each chart is a test, and together they call 1 in 100 sets without drift drifted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from equipoise.drift.charts.cell_statistics import ImageFeatures, shrunk_class_means
from equipoise.drift.diagnosis.accuracy_estimate import estimate_accuracy
from equipoise.drift.diagnosis.cause import Cause
from equipoise.drift.diagnosis.dataset_findings import ReferenceSupport
from equipoise.drift.diagnosis.root_cause import diagnose_window
from equipoise.drift.diagnosis.stream_verdict import (
    feature_reading,
    find_runner_up,
    find_silent_charts,
    list_corruption_effects,
    most_frequent,
    name_counts,
    name_reference_counts,
)
from equipoise.drift.diagnosis.verdict import ChartEffect, ChartReading, DatasetVerdict
from equipoise.drift.diagnosis.window import Window, window_from_sums
from equipoise.drift.reference.profile import ReferenceProfile
from equipoise.drift.stats.density_ratio import estimate_density_ratio
from equipoise.drift.stats.label_shift import residual_shift_test
from equipoise.drift.stats.two_sample_tests import chi_squared_test, ks_test_by_column, mmd_permutation_test
from equipoise.proportions import wilson_interval
from equipoise.spacing import evenly_spaced_indices
from equipoise.type_aliases import AnyArray

CLASS_CHARTS = ("classes", "answers")
"""names of the chart of shares: of predicted classes, or of the quarters of predicted numbers"""
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
    reference_conditions: NDArray[np.int64] | None = None,
) -> DatasetVerdict:
    """Return the verdict on a set of images.

    Takes the images' charted and model features, and the model features, predicted classes and conditions (None: all
    of the first) of the reference. Images are called by their indices if not given names. Features are not compared
    where the profile charts none, as for texts.
    """
    examples = profile.schema.example_name
    if len(image_features) < MIN_DATASET_IMAGES:
        reason = f"{len(image_features)} {examples} were given; at least {MIN_DATASET_IMAGES} are needed"
        return DatasetVerdict(
            kind=profile.schema.kind,
            has_accuracy=profile.schema.has_accuracy,
            state="unknown",
            why=reason,
            images=len(image_features),
        )
    window = window_from_sums(profile, profile.baseline.sum_features(image_features))
    class_count = profile.baseline.layout.class_count
    reference_cells = reference_predictions
    if reference_conditions is not None:
        reference_cells = reference_conditions * class_count + reference_predictions
    has_features = image_features.fourier_features.shape[1] > 0
    compared = match_condition_shares(
        ModelFeatures(image_features.cells, features), ModelFeatures(reference_cells, reference_features), class_count
    )
    charts = [
        *statistic_charts(window),
        distribution_chart(profile, image_features),
    ]
    if class_count > 1:
        charts.append(class_share_chart(profile, window))
    if has_features:
        charts.append(feature_chart(*compared, profile.baseline.layout.cell_count, permutation_count))
    alarmed = {chart.name for chart in charts if chart.value >= chart.threshold}
    cause = diagnose_window(window, not alarmed.isdisjoint(CLASS_CHARTS)) if alarmed else None
    if cause and cause.name == "label shift" and not is_label_shift_sufficient(*compared, permutation_count):
        why = "the shares of the classes have changed, but that does not explain how the features differ"
        cause = Cause("features", why)
    moved = most_shifted_images(profile, image_features, window) if alarmed else []
    return DatasetVerdict(
        kind=profile.schema.kind,
        has_accuracy=profile.schema.has_accuracy,
        state="drift" if alarmed else "ok",
        why=cause.explanation if cause else f"{len(image_features)} {examples} look like the reference",
        images=len(image_features),
        cause=cause.name if cause else None,
        effects=list_corruption_effects(cause),
        runner_up=find_runner_up(cause),
        charts=tuple(sorted(charts, key=lambda chart: chart.threshold - chart.value)),
        accuracy=estimate_accuracy(window, cause) or "unknown",
        classes=name_counts(profile, window.class_counts),
        usual=name_reference_counts(profile),
        conditions=window.condition_shares,
        condition=most_frequent(window.condition_shares),
        support=measure_reference_support(*compared) if alarmed and has_features else None,
        moved=tuple(image_names[index] if image_names else str(index) for index in moved),
    )


@dataclass(frozen=True, eq=False)
class ModelFeatures:
    """The model's features of some images, with the cells that the images belong to."""

    cells: NDArray[np.int64]
    """(n,) indices of cells: of a condition and a predicted class"""
    values: AnyArray
    """(n, features)"""

    def select(self, indices: NDArray[np.int64]) -> "ModelFeatures":
        """Return the rows of the given indices."""
        return ModelFeatures(self.cells[indices], self.values[indices])


def match_condition_shares(
    current: ModelFeatures, reference: ModelFeatures, class_count: int
) -> tuple[ModelFeatures, ModelFeatures]:
    """Return both with the same shares of conditions, by leaving out reference images.

    Images of a condition of which the reference has none are left out too.
    """
    conditions, reference_conditions = current.cells // class_count, reference.cells // class_count
    if conditions.max(initial=0) == 0 and reference_conditions.max(initial=0) == 0:
        return current, reference
    condition_count = int(max(conditions.max(), reference_conditions.max())) + 1
    counts, reference_counts = (
        np.bincount(values, minlength=condition_count) for values in (conditions, reference_conditions)
    )
    common = (counts > 0) & (reference_counts > 0)
    per_image = min((reference_counts[common] / counts[common]).tolist(), default=0)
    chosen = [
        np.flatnonzero(reference_conditions == condition)[
            evenly_spaced_indices(int(reference_counts[condition]), max(int(per_image * counts[condition]), 1))
        ]
        for condition in np.flatnonzero(common)
    ]
    indices = np.concatenate([np.zeros(0, np.int64), *chosen])
    return current.select(np.flatnonzero(common[conditions])), reference.select(indices)


def most_shifted_images(profile: ReferenceProfile, image_features: ImageFeatures, window: Window) -> list[int]:
    """Return indices of the images that lie farthest in the direction of the window's shift, the farthest first."""
    along = profile.baseline.usual.scores(image_features) @ window.scores
    indices: list[int] = np.argsort(-along, kind="stable")[:MAX_EXAMPLE_IMAGES].tolist()
    return indices


def measure_reference_support(current: ModelFeatures, reference: ModelFeatures) -> ReferenceSupport | None:
    """Measure which share of the reference is effectively like the given images.

    If it is small, no weighting of the reference can stand for these images. None if too few can be compared.
    """
    if len(current.cells) < MIN_DATASET_IMAGES:
        return None
    sample = reference.values[evenly_spaced_indices(len(reference.cells), MAX_WEIGHTED_REFERENCE_IMAGES)]
    ratio = estimate_density_ratio(sample, current.values)
    return ReferenceSupport(
        share=float(ratio.effective_sample_size / len(sample)), moved=bool(ratio.is_outside_reference)
    )


def statistic_charts(window: Window) -> list[ChartReading]:
    """Test the mean of each charted feature against what is usual for the predicted classes."""
    z = window.scores * np.sqrt(window.effective_sample_size)
    neg_log_p = -(np.log(2) + log_ndtr(-np.abs(z))) / np.log(10)
    threshold = float(-np.log10(ALPHA / TEST_FAMILY_COUNT / len(neg_log_p)))
    return [
        feature_reading(window, index, float(max(value, 0)), threshold)
        for index, value in enumerate(neg_log_p)
        if window.profile.schema.names[index] not in find_silent_charts(window.profile)
    ]


def distribution_chart(profile: ReferenceProfile, image_features: ImageFeatures) -> ChartReading:
    """Test the distribution of each charted feature, which may differ where the mean does not; chart the worst."""
    tested = np.flatnonzero(~profile.schema.is_binary)  # the score of what is 0 or 1 only tells the class
    scores = profile.baseline.usual.scores(image_features)[:, tested].astype(np.float32)
    test = ks_test_by_column(profile.baseline.ranked[tested].T, scores)
    column = int(test.p_value.argmin())
    unit = f"largest gap between the distributions of {profile.schema.names[tested[column]]}"
    effect = ChartEffect(unit=unit, value=float(test.statistic[column]), low=None, high=None)
    threshold = float(-np.log10(ALPHA / TEST_FAMILY_COUNT / len(tested)))
    value = neg_log10_p(float(test.p_value[column]))
    return ChartReading(name="shape", value=value, threshold=threshold, effect=effect)


def is_label_shift_sufficient(current: ModelFeatures, reference: ModelFeatures, permutation_count: int) -> bool:
    """Return whether new class shares alone explain the features: a reference with these shares has the same ones."""
    if len(current.cells) < MIN_DATASET_IMAGES:
        return True
    count = int(max(current.cells.max(), reference.cells.max())) + 1
    shares, before = (np.bincount(cells, minlength=count) / len(cells) for cells in (current.cells, reference.cells))
    test = residual_shift_test(
        reference.values, reference.cells, shares / np.maximum(before, 1e-9), current.values, permutation_count
    )
    return test.p_value >= ALPHA


def class_share_chart(profile: ReferenceProfile, window: Window) -> ChartReading:
    """Test the shares of predicted classes, given the conditions; the effect is the class whose share moved most."""
    counts = window.reference_class_counts
    test = chi_squared_test(counts.astype(np.int64), window.class_counts.astype(np.int64))
    shares, current_shares = counts / counts.sum(), window.class_counts / window.image_count
    index = int(np.abs(current_shares - shares).argmax())
    share = float(current_shares[index])
    low, high = wilson_interval(share, window.image_count)
    effect = ChartEffect(
        unit=f"of the {profile.schema.example_name}",
        value=share,
        low=low,
        high=high,
        class_name=profile.class_names[index],
        reference=float(shares[index]),
    )
    return ChartReading(
        name=CLASS_CHARTS[0] if profile.schema.has_accuracy else CLASS_CHARTS[1],
        value=neg_log10_p(test.p_value),
        threshold=float(-np.log10(ALPHA / TEST_FAMILY_COUNT)),
        effect=effect,
    )


def feature_chart(
    current: ModelFeatures, reference: ModelFeatures, cell_count: int, permutation_count: int
) -> ChartReading:
    """Test the features, less the mean of their cell, by their maximum mean discrepancy."""
    threshold, unit = float(-np.log10(ALPHA / TEST_FAMILY_COUNT)), "squared maximum mean discrepancy"
    if len(current.cells) < MIN_DATASET_IMAGES:  # the others have no reference to be compared with
        return ChartReading(name="features", value=0.0, threshold=threshold, effect=None)
    member = np.zeros((cell_count, len(reference.cells)))
    member[reference.cells, np.arange(len(reference.cells))] = 1
    mean = shrunk_class_means(member, reference.values.astype(np.float64))
    test = mmd_permutation_test(
        reference.values - mean[reference.cells], current.values - mean[current.cells], permutation_count
    )
    effect = ChartEffect(unit=unit, value=float(test.statistic), low=None, high=None)
    return ChartReading(name="features", value=neg_log10_p(test.p_value), threshold=threshold, effect=effect)


def neg_log10_p(p: float) -> float:
    """Return the negative decimal logarithm of a p-value: 3 for 1 in 1,000."""
    return float(-np.log10(max(p, 1e-300)))
