"""Build a reference profile of any kind from statistics, classes and features of examples: rows, texts or images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import fit_baseline
from equipoise.drift.charts.cell_statistics import ClassStatistics, ImageFeatures
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION
from equipoise.drift.features.random_fourier import DIRECTION_COUNT, RandomFourierFeatures, fit_random_features
from equipoise.drift.features.statistic_schema import StatisticSchema
from equipoise.drift.reference.false_alarms import count_false_alarms
from equipoise.drift.reference.profile import ConditionAccuracy, LabelStatistics, ReferenceProfile
from equipoise.drift.reference.signatures import Signatures
from equipoise.drift.reference.simulated_streams import LabelledFeatures
from equipoise.drift.reference.thresholds import calibrate_thresholds
from equipoise.type_aliases import AnyArray

JOINT_SEED = 1  # of the streams on which the largest of many charts is fitted; images have few, which move together


@dataclass(frozen=True, eq=False)
class ReferenceExamples:
    """Examples that the model was not trained on, as the model answers them."""

    statistics: NDArray[np.float32]
    """(n, statistics of the schema but those of the features)"""
    predicted_classes: NDArray[np.int64]
    """(n,) class of each answer; all 0 where the answers have no classes"""
    features: AnyArray
    """(n, width) features of the model"""
    labels: NDArray[np.int64]
    """(n,) true classes; the predicted ones where they are unknown"""
    has_labels: bool = True
    """false where the labels are the predicted classes"""

    def __len__(self) -> int:
        return len(self.labels)

    def extract(self, random_fourier: RandomFourierFeatures) -> ImageFeatures:
        """Return what charts need of the examples."""
        return ImageFeatures(self.statistics, self.predicted_classes, random_fourier(self.features))


def build_profile_from_examples(
    schema: StatisticSchema,
    reference: ReferenceExamples,
    class_names: Sequence[str],
    holdout: ReferenceExamples | None = None,
    conditions: Sequence[tuple[str, ReferenceExamples]] = (),
    temperature: float = 1.0,
    charts_features: bool = True,
) -> ReferenceProfile:
    """Build the profile of reference examples and of further conditions, each with its name, that the model knows.

    Conditions that have the name of the first one are taken into the reference. False alarms are counted on the
    held-out examples, if given, which are of the same condition as the reference. `charts_features` says whether the
    features of the model are compared too.
    """
    direction_count = DIRECTION_COUNT if charts_features else 0
    random_fourier = fit_random_features(reference.features, direction_count=direction_count)
    class_count = len(class_names)
    conditions = sorted(conditions, key=lambda condition: condition[0] != PUBLISHED_CONDITION)
    others = [name for name, _ in conditions if name != PUBLISHED_CONDITION]
    growth_count = len(conditions) - len(others)
    groups = [reference, *(examples for _, examples in conditions)]
    parts = [group.extract(random_fourier) for group in groups]
    features = concat_conditions(parts, [0] * (1 + growth_count) + list(range(1, len(others) + 1)))
    names = PUBLISHED_CONDITION, *others
    baseline = fit_baseline(features, class_count, random_fourier, temperature, names, schema)
    labels = np.concatenate([group.labels for group in groups])
    examples = LabelledFeatures(baseline.assign_conditions(features), labels, features.conditions)
    has_labels = np.repeat([group.has_labels for group in groups], [len(part) for part in parts])
    labelled = examples.select(np.flatnonzero(has_labels))
    joint_seed = None if schema.kind == "image" else JOINT_SEED
    calibration = calibrate_thresholds(examples, class_count, 0, find_rare_events(schema), joint_seed)
    check = None
    if holdout:
        held_out = baseline.assign_conditions(holdout.extract(random_fourier))
        held_out_examples = LabelledFeatures(held_out, holdout.labels)
        check = count_false_alarms(baseline.usual, calibration, held_out_examples, len(names))
    return ReferenceProfile(
        baseline,
        calibration,
        Signatures.empty(len(schema)),
        fit_label_statistics(labelled, baseline.usual, class_count),
        tuple(class_names),
        check,
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


def measure_condition_accuracy(labelled: LabelledFeatures, condition_count: int) -> ConditionAccuracy | None:
    """Count the labelled images of each condition and those that the model is right about; None for one condition."""
    if labelled.origins is None:
        return None
    is_correct = labelled.features.predicted_classes == labelled.labels
    return ConditionAccuracy(
        np.bincount(labelled.origins, minlength=condition_count),
        np.bincount(labelled.origins[is_correct], minlength=condition_count),
    )


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


def find_rare_events(schema: StatisticSchema) -> NDArray[np.int64]:
    """Return the columns of statistics of the input that are 0 or 1, and may be always 0 in a reference."""
    return np.flatnonzero(schema.is_binary[: schema.input_count])
