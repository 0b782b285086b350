"""Reference profile of a bundle, to judge requests by: written when it is published, read when it is loaded."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import Baseline
from equipoise.drift.charts.cell_statistics import ClassStatistics
from equipoise.drift.charts.conditions import PUBLISHED_CONDITION, ConditionRule
from equipoise.drift.charts.sums import SumsLayout, sum_over_classes
from equipoise.drift.features.box_stats import BoxEncoder
from equipoise.drift.features.image_schema import IMAGE_SCHEMA
from equipoise.drift.features.image_stats import STATISTIC_NAMES
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.drift.features.statistic_schema import ProfileKind, StatisticSchema
from equipoise.drift.features.table_stats import TableEncoder
from equipoise.drift.features.text_stats import TextEncoder
from equipoise.drift.reference.false_alarms import FalseAlarmCheck
from equipoise.drift.reference.signatures import Signatures
from equipoise.drift.reference.thresholds import Calibration
from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray, FloatArray

ARRAY_PREFIX = "drift."  # of array names in reference.npz, which holds other arrays too
SCHEMA_PREFIX, ENCODER_PREFIX = "schema.", "encoder."
ExampleEncoder = TableEncoder | TextEncoder | BoxEncoder
ENCODERS: dict[ProfileKind, type[TableEncoder] | type[TextEncoder] | type[BoxEncoder]] = {
    "table": TableEncoder,
    "text": TextEncoder,
    "boxes": BoxEncoder,
}


@dataclass(frozen=True, eq=False)
class LabelStatistics:
    """Statistics of the reference images by true class."""

    prior: NDArray[np.float64]
    """(classes,) shares of true classes"""
    confusion: NDArray[np.float64]
    """(classes, classes) share of each true class (column) that is predicted as each class (row)"""
    scores: NDArray[np.float64]
    """(classes, charted statistics) mean scores by true class, whatever the predicted class"""
    rest: NDArray[np.float32]
    """(classes, Fourier features) mean residuals from the means of the predicted classes, by true class"""


@dataclass(frozen=True, eq=False)
class ConditionAccuracy:
    """Labelled reference images of each condition, and how many of them the model is right about."""

    labelled: NDArray[np.int64]
    """(conditions,) number of labelled images"""
    correct: NDArray[np.int64]
    """(conditions,) number of those whose class the model predicts"""


@dataclass(frozen=True, eq=False)
class ReferenceProfile:
    """Everything that drift detection and diagnosis need of a reference."""

    baseline: Baseline
    calibration: Calibration
    signatures: Signatures
    labelled: LabelStatistics
    class_names: tuple[str, ...]
    verified: FalseAlarmCheck | None = None
    """false alarms counted on held-out images, if there were any"""
    condition_names: tuple[str, ...] = (PUBLISHED_CONDITION,)
    """names of the conditions; those of one name, such as two lights and what lies between, are reported as one"""
    condition_accuracy: ConditionAccuracy | None = None
    """accuracy by condition; None where one condition is known"""
    encoder: ExampleEncoder | None = None
    """turns examples into statistics; None for labelled images, whose statistics are the same in every profile"""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the profile by name, to be stored in a file."""
        base = self.baseline
        schema = self.schema.to_arrays()
        arrays: dict[str, AnyArray | float] = {
            "figures": schema.pop("name"),
            "temperature": base.temperature,
            "directions": base.random_fourier.directions,
            "ranked": base.ranked,
            "wider": base.rank_margin,
        }
        if self.verified:
            arrays["verified"] = np.array(astuple(self.verified))
        if len(self.condition_names) > 1:
            arrays["condition names"] = np.array(self.condition_names)
        arrays |= {f"{SCHEMA_PREFIX}{name}": value for name, value in schema.items()}
        if self.encoder:
            arrays |= {f"{ENCODER_PREFIX}{name}": value for name, value in self.encoder.to_arrays().items()}
        for name, part in self.array_parts().items():
            arrays |= {f"{name}.{field.name}": getattr(part, field.name) for field in fields(part)}
        return {ARRAY_PREFIX + name: np.asarray(value) for name, value in arrays.items()}

    @property
    def schema(self) -> StatisticSchema:
        """Charted statistics, and the kind of the examples."""
        return self.baseline.schema

    @property
    def image_count(self) -> int:
        """Number of reference images, of the condition that has the fewest."""
        return int(sum_over_classes(self.baseline.usual.counts, len(self.class_names)).min())

    def share_by_name(self, condition_counts: FloatArray) -> dict[str, float]:
        """Return the share of each condition, by name, from counts (conditions,); empty if there are no images."""
        total, shares = float(condition_counts.sum()), dict.fromkeys(self.condition_names, 0.0)
        if total == 0:
            return {}
        for name, count in zip(self.condition_names, condition_counts.tolist(), strict=True):
            shares[name] += count / total
        return shares

    def array_parts(self) -> dict[str, Any]:
        """Return the parts that consist of arrays only, by name."""
        parts = {
            "usual": self.baseline.usual,
            "calibration": self.calibration,
            "signatures": self.signatures,
            "labelled": self.labelled,
            "condition rule": self.baseline.condition_rule,
            "condition accuracy": self.condition_accuracy,
        }
        return {name: part for name, part in parts.items() if part is not None}


@dataclass(frozen=True)
class ReferenceUnavailable:
    """Reason, in one sentence, why a model has no reference profile."""

    reason: str


def reference_to_arrays(reference: ReferenceProfile | ReferenceUnavailable) -> dict[str, AnyArray]:
    """Return a profile with its class names, or the reason why there is none, as arrays for the drift monitor."""
    if isinstance(reference, ReferenceUnavailable):
        return {
            f"{ARRAY_PREFIX}why not": np.array(reference.reason),
            "classes": np.array([], dtype=str),
            "width": np.array(0),
        }
    width = reference.baseline.random_fourier.directions.shape[0]
    return reference.to_arrays() | {"classes": np.array(reference.class_names), "width": np.array(width)}


def read_registered_arrays(arrays: Mapping[str, AnyArray]) -> ReferenceProfile | ReferenceUnavailable:
    """Read the arrays of `reference_to_arrays`."""
    try:
        return profile_from_arrays(arrays, arrays["classes"].tolist(), int(arrays["width"]))
    except EquipoiseError as error:
        return ReferenceUnavailable(str(error))


def profile_from_arrays(
    arrays: Mapping[str, NDArray[Any]], class_names: Sequence[str], feature_count: int
) -> ReferenceProfile:
    """Read the profile from the arrays of a bundle; refuse them if it is missing or made for another model."""
    stored = {name.removeprefix(ARRAY_PREFIX): value for name, value in arrays.items() if name.startswith(ARRAY_PREFIX)}
    if "why not" in stored:
        raise EquipoiseError("reference-unusable", str(stored["why not"]))
    try:
        schema = read_schema(stored)
        encoder = read_encoder(stored, schema)
        statistics, calibration, signatures, labelled = (
            read_part(part, stored, name) for name, part in PROFILE_PARTS.items()
        )
        names = tuple(stored.get("condition names", np.array([PUBLISHED_CONDITION])).tolist())
        has_conditions = len(names) > 1
        rule = read_part(ConditionRule, stored, "condition rule") if has_conditions else None
        accuracy = read_part(ConditionAccuracy, stored, "condition accuracy") if has_conditions else None
        directions, ranked, temperature, margin = (
            stored[name] for name in ("directions", "ranked", "temperature", "wider")
        )
    except KeyError as error:
        raise EquipoiseError(
            "reference-unusable",
            f"the bundle has no reference to compare with ({error.args[0]} is missing)",
            "publish the bundle again",
        ) from None
    width, class_count = directions.shape[0], len(class_names)
    stored_class_count = labelled.prior.shape[0]
    if width != feature_count or stored_class_count != class_count:
        raise EquipoiseError(
            "reference-unusable",
            f"the reference has {width} features and {stored_class_count} classes, "
            f"the model {feature_count} features and {class_count} classes",
            "publish the bundle again",
        )
    require_matching_conditions(names, statistics, rule, class_count)
    layout = SumsLayout(class_count, len(schema), statistics.waves.shape[1], len(names))
    random_fourier = RandomFourierFeatures(directions)
    base = Baseline(float(temperature), random_fourier, statistics, layout, ranked, float(margin), rule, schema)
    check = parse_false_alarm_check(stored.get("verified"))
    return ReferenceProfile(
        base, calibration, signatures, labelled, tuple(class_names), check, names, accuracy, encoder
    )


def read_schema(stored: Mapping[str, NDArray[Any]]) -> StatisticSchema:
    """Read the schema of a profile; refuse one of images whose statistics are not those of this version."""
    names, parts = stored["figures"], select_prefix(stored, SCHEMA_PREFIX)
    kind = str(parts.get("kind", "image"))
    usual = {"image": IMAGE_SCHEMA.names, "boxes": STATISTIC_NAMES}.get(kind, ())
    is_current = tuple(names[: len(names) if kind == "image" else len(usual)].tolist()) == usual
    if not is_current or len(names) != len(stored["ranked"]):
        raise EquipoiseError(
            "reference-unusable", "the reference was made by another version", "publish the bundle again"
        )
    return StatisticSchema.from_arrays(parts | {"name": names})


def read_encoder(stored: Mapping[str, NDArray[Any]], schema: StatisticSchema) -> ExampleEncoder | None:
    """Read the encoder of a profile; None if it has none."""
    arrays = select_prefix(stored, ENCODER_PREFIX)
    return ENCODERS[schema.kind].from_arrays(arrays) if arrays and schema.kind in ENCODERS else None


def select_prefix(stored: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}


def read_part(part: type[Any], stored: Mapping[str, NDArray[Any]], name: str) -> Any:
    """Read a part of a profile that consists of arrays only."""
    return part(**{field.name: stored[f"{name}.{field.name}"] for field in fields(part)})


def require_matching_conditions(
    names: tuple[str, ...], statistics: ClassStatistics, rule: ConditionRule | None, class_count: int
) -> None:
    """Refuse a profile whose statistics are of another number of conditions than it names."""
    cell_count = len(names) * class_count
    has_rule_for_each = rule is None or rule.mean.shape[:2] == (len(names), class_count)
    if len(statistics.counts) != cell_count or not has_rule_for_each:
        raise EquipoiseError(
            "reference-unusable",
            f"the reference names {len(names)} conditions of {class_count} classes, but has statistics of "
            f"{len(statistics.counts)} pairs of a condition and a class",
            "publish the bundle again",
        )


def parse_false_alarm_check(array: NDArray[Any] | None) -> FalseAlarmCheck | None:
    """Parse the false-alarm check of a stored profile, or return None if it was stored without one."""
    if array is None:
        return None
    if len(array) != len(fields(FalseAlarmCheck)):
        raise EquipoiseError(
            "reference-unusable", "the reference was made by another version", "publish the bundle again"
        )
    asked, pictures, alarms, held_out, resampled_alarms, log_spread = array.tolist()
    return FalseAlarmCheck(asked, int(pictures), int(alarms), int(held_out), int(resampled_alarms), log_spread)


PROFILE_PARTS: dict[str, Any] = {
    "usual": ClassStatistics,
    "calibration": Calibration,
    "signatures": Signatures,
    "labelled": LabelStatistics,
}
