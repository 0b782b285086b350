"""All that a bundle knows of its reference, to judge requests by: made when it is published, read when it is loaded."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import FIGURES, Baseline, Usual
from equipoise.drift.charts.sums import Layout
from equipoise.drift.features.random_fourier import Waves
from equipoise.drift.reference.false_alarms import Verified
from equipoise.drift.reference.signatures import Signatures
from equipoise.drift.reference.thresholds import Calibration

PREFIX = "drift."  # of the arrays' names, beside others in reference.npz


@dataclass(frozen=True, eq=False)
class Labelled:
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
class Known:
    """A reference, ready for use."""

    baseline: Baseline
    calibration: Calibration
    signatures: Signatures
    labelled: Labelled
    verified: Verified | None = None
    """how rare false alarms were on pictures kept apart"""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a file."""
        base = self.baseline
        found: dict[str, Any] = {
            "figures": np.array(FIGURES),
            "temperature": base.temperature,
            "directions": base.waves.directions,
            "ranked": base.ranked,
            "wider": base.wider,
        }
        if self.verified:
            found["verified"] = astuple(self.verified)
        for name, part in self.parts().items():
            found |= {f"{name}.{field.name}": getattr(part, field.name) for field in fields(part)}
        return {PREFIX + name: np.asarray(value) for name, value in found.items()}

    def parts(self) -> dict[str, Any]:
        """Those that consist of arrays alone."""
        return {
            "usual": self.baseline.usual,
            "calibration": self.calibration,
            "signatures": self.signatures,
            "labelled": self.labelled,
        }


def known(arrays: Mapping[str, NDArray[Any]], classes: int, features: int) -> Known:
    """From a bundle's arrays; one sentence if they are not there or for another model."""
    held = {name.removeprefix(PREFIX): value for name, value in arrays.items() if name.startswith(PREFIX)}
    if "why not" in held:
        raise ValueError(str(held["why not"]))
    try:
        if held["figures"].tolist() != list(FIGURES):
            raise ValueError("the reference was made by another version: publish again")
        usual, calibration, signatures, labelled = (
            part(**{field.name: held[f"{name}.{field.name}"] for field in fields(part)}) for name, part in PARTS.items()
        )
        directions, ranked, temperature, wider = (
            held[name] for name in ("directions", "ranked", "temperature", "wider")
        )
    except KeyError as error:
        raise ValueError(f"the bundle has no reference to compare with (no {error.args[0]}): publish again") from None
    width = directions.shape[0]
    if width != features or len(usual.counts) != classes:
        wanted = f"{features} features and {classes} classes"
        raise ValueError(f"the reference has {width} features and {len(usual.counts)} classes, the model {wanted}")
    layout = Layout(classes, len(FIGURES), usual.waves.shape[1])
    base = Baseline(float(temperature), Waves(directions), usual, layout, ranked, float(wider))
    return Known(base, calibration, signatures, labelled, counted(held.get("verified")))


def counted(held: NDArray[Any] | None) -> Verified | None:
    """Of a file, which may have been made without."""
    return None if held is None else Verified(float(held[0]), int(held[1]), int(held[2]))


PARTS: dict[str, Any] = {
    "usual": Usual,
    "calibration": Calibration,
    "signatures": Signatures,
    "labelled": Labelled,
}
