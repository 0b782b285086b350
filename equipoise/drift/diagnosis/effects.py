"""Which cause explains how the charts moved, and how much of it: the nearest signature."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.drift.charts.baseline import FIGURES
from equipoise.drift.features.image_stats import NAMES, WHOLE
from equipoise.drift.reference.signatures import Signatures

Array = NDArray[Any]

ENOUGH = 0.5  # of the squared movement of charts, that a cause must explain to be named
CELL_WEIGHT = 0.5  # of a cell's score: there are many, and they move together
MEASURED = {
    "colour temperature": FIGURES.index("red over blue"),
    "tint": FIGURES.index("green"),
    "exposure": FIGURES.index("luminance"),
}
"""causes whose size one figure says by itself"""
GRAIN_WEIGHT = 0.4  # of roughness: whether grain follows the light or not differs by camera
SURE = 1.96  # standard errors either way of an interval


@dataclass(frozen=True)
class Effect:
    """A cause, and how much of it."""

    cause: str
    detail: str
    unit: str
    value: float
    low: float
    high: float
    explained: float
    """share of the charts' movement that it accounts for"""
    kind: int
    """which of the signatures', to look up what else it does"""
    place: float
    """how far along them; 0 is no change, 1 the first that was tried"""


def weights() -> NDArray[np.float64]:
    """How much each figure counts: those of the picture, not those of the model, which follow."""
    found = np.zeros(len(FIGURES))
    found[: len(WHOLE)], found[len(WHOLE) : len(NAMES)] = 1, CELL_WEIGHT
    found[FIGURES.index("roughness")] = GRAIN_WEIGHT
    return found


def effects(moved: "Moved", known: Signatures) -> list[Effect]:
    """All kinds of change, the one that explains most first."""
    found = [effect(moved, known, kind) for kind in range(len(known.names))]
    return sorted(found, key=lambda one: -one.explained)


def without(moved: "Moved", known: Signatures, found: Effect) -> "Moved":
    """What is left to explain once a cause has been named."""
    rows = np.flatnonzero(known.kind == found.kind)
    scores, shifts = (at(from_nothing(table[rows]), found.place) for table in (known.scores, known.shifts))
    return Moved(moved.pictures, moved.scores - scores, moved.shifts - shifts, moved.scale)


def at(path: Array, place: float) -> Array:
    """The point of a path at a place."""
    low = min(int(place), len(path) - 2)
    return np.asarray(path[low] + (place - low) * (path[low + 1] - path[low]))


@dataclass(frozen=True, eq=False)
class Moved:
    """How some pictures differ from what is usual, on average."""

    pictures: float
    scores: Array
    """(figures,) in standard deviations, clipped"""
    shifts: Array
    """in each figure's own units"""
    scale: Array
    """what a standard deviation is"""


def effect(moved: Moved, known: Signatures, kind: int) -> Effect:
    """How much one kind of change explains, and at which size."""
    rows = np.flatnonzero(known.kind == kind)
    aim, path = moved.scores * weights(), from_nothing(known.scores[rows]) * weights()
    place, missed, step = nearest(aim, path)
    error = 1 / np.sqrt(step * max(moved.pictures, 1))  # scores have a standard deviation of one
    cause, detail, unit = (str(one) for one in known.names[kind])
    if (figure := MEASURED.get(cause)) is not None:
        line = from_nothing(known.shifts[rows])[:, figure]
        place, error = along(line, moved.shifts[figure], moved.scale[figure] / np.sqrt(max(moved.pictures, 1)))
    sizes = np.concatenate([known.none[kind : kind + 1], known.size[rows]])
    value, low, high = np.interp([place, place - SURE * error, place + SURE * error], np.arange(len(sizes)), sizes)
    share = 1 - missed / max((aim**2).sum(), 1e-12)
    return Effect(
        cause,
        detail,
        unit,
        float(value),
        float(min(low, high)),
        float(max(low, high)),
        float(share),
        kind,
        float(place),
    )


def from_nothing(rows: Array) -> Array:
    """The rows of a kind of change, after one of zeros."""
    return np.concatenate([np.zeros((1, rows.shape[1])), rows])


def nearest(aim: Array, path: Array) -> tuple[float, float, float]:
    """The place on a path of straight pieces, how far it is from the aim, and the square of a piece's length there."""
    steps = np.diff(path, axis=0)
    lengths = np.maximum((steps**2).sum(1), 1e-12)
    share = np.clip(((aim - path[:-1]) * steps).sum(1) / lengths, 0, 1)
    missed = ((path[:-1] + share[:, None] * steps - aim) ** 2).sum(1)
    best = int(missed.argmin())
    return best + float(share[best]), float(missed[best]), float(lengths[best])


def along(line: Array, value: float, error: float) -> tuple[float, float]:
    """The place on a line that rises or falls, at which it has a value; and the place's own error."""
    sign = np.sign(line[-1]) or 1.0
    rising = np.maximum.accumulate(sign * line)
    place = float(np.interp(sign * value, rising, np.arange(len(line))))
    slope = np.diff(rising)[min(int(place), len(line) - 2)]
    return place, error / max(float(slope), 1e-9)
