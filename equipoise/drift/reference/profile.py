"""All that a bundle knows of its reference, to judge requests by: made when it is published, read when it is loaded."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import CHARTED_FEATURES, Baseline, ClassStatistics
from equipoise.drift.charts.sums import SumsLayout
from equipoise.drift.features.random_fourier import RandomFourierFeatures
from equipoise.drift.reference.false_alarms import FalseAlarmCheck
from equipoise.drift.reference.signatures import Signatures
from equipoise.drift.reference.thresholds import Calibration

ARRAY_PREFIX = "drift."  # of the arrays' names, beside others in reference.npz


@dataclass(frozen=True, eq=False)
class LabelStatistics:
    """What is known of a reference's pictures by what they really show."""

    prior: NDArray[np.float64]
    """(classes,) shares"""
    confusion: NDArray[np.float64]
    """share of each class (column) that is called each class (row)"""
    scores: NDArray[np.float64]
    """(classes, figures) mean scores of what shows each class, whatever it is called"""
    rest: NDArray[np.float32]
    """(classes, waves) the same of features less what is usual for what they are called"""


@dataclass(frozen=True, eq=False)
class ReferenceProfile:
    """A reference, ready for use."""

    baseline: Baseline
    calibration: Calibration
    signatures: Signatures
    labelled: LabelStatistics
    verified: FalseAlarmCheck | None = None
    """how rare false alarms were on pictures kept apart"""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a file."""
        base = self.baseline
        found: dict[str, Any] = {
            "figures": np.array(CHARTED_FEATURES),
            "temperature": base.temperature,
            "directions": base.random_fourier.directions,
            "ranked": base.ranked,
            "wider": base.wider,
        }
        if self.verified:
            found["verified"] = astuple(self.verified)
        for name, part in self.array_parts().items():
            found |= {f"{name}.{field.name}": getattr(part, field.name) for field in fields(part)}
        return {ARRAY_PREFIX + name: np.asarray(value) for name, value in found.items()}

    def array_parts(self) -> dict[str, Any]:
        """Those that consist of arrays alone."""
        return {
            "usual": self.baseline.usual,
            "calibration": self.calibration,
            "signatures": self.signatures,
            "labelled": self.labelled,
        }


def profile_from_arrays(arrays: Mapping[str, NDArray[Any]], class_count: int, feature_count: int) -> ReferenceProfile:
    """From a bundle's arrays; one sentence if they are not there or for another model."""
    held = {name.removeprefix(ARRAY_PREFIX): value for name, value in arrays.items() if name.startswith(ARRAY_PREFIX)}
    if "why not" in held:
        raise ValueError(str(held["why not"]))
    try:
        if held["figures"].tolist() != list(CHARTED_FEATURES):
            raise ValueError("the reference was made by another version: publish again")
        usual, calibration, signatures, labelled = (
            part(**{field.name: held[f"{name}.{field.name}"] for field in fields(part)})
            for name, part in PROFILE_PARTS.items()
        )
        directions, ranked, temperature, wider = (
            held[name] for name in ("directions", "ranked", "temperature", "wider")
        )
    except KeyError as error:
        raise ValueError(f"the bundle has no reference to compare with (no {error.args[0]}): publish again") from None
    width = directions.shape[0]
    if width != feature_count or len(usual.counts) != class_count:
        wanted = f"{feature_count} features and {class_count} classes"
        raise ValueError(f"the reference has {width} features and {len(usual.counts)} classes, the model {wanted}")
    layout = SumsLayout(class_count, len(CHARTED_FEATURES), usual.waves.shape[1])
    base = Baseline(float(temperature), RandomFourierFeatures(directions), usual, layout, ranked, float(wider))
    return ReferenceProfile(base, calibration, signatures, labelled, parse_false_alarm_check(held.get("verified")))


def parse_false_alarm_check(array: NDArray[Any] | None) -> FalseAlarmCheck | None:
    """Of a file, which may have been made without."""
    return None if array is None else FalseAlarmCheck(float(array[0]), int(array[1]), int(array[2]))


PROFILE_PARTS: dict[str, Any] = {
    "usual": ClassStatistics,
    "calibration": Calibration,
    "signatures": Signatures,
    "labelled": LabelStatistics,
}
