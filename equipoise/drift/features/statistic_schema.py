"""Schema of the statistics that one reference profile watches: their names, and what charts and diagnosis need of each.

A profile carries its schema, so the same charts, sums, calibration and tests watch images, rows of a table and texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import EquipoiseError
from equipoise.type_aliases import FloatArray

ProfileKind = Literal["image", "table", "text", "boxes"]
EXAMPLE_NAMES: dict[ProfileKind, str] = {"image": "images", "table": "rows", "text": "texts", "boxes": "images"}
"""what the examples of each kind are called in verdicts"""
KINDS_OF_IMAGES = ("image", "boxes")
"""kinds whose examples are images, so that a corruption may be the cause of a drift"""
JOINT_CAUSE = "joint"
"""cause where examples look unlike the reference as a whole, but nothing has moved by itself"""
COLUMN_CAUSE, SCALE_CAUSE, CATEGORY_CAUSE, MISSING_CAUSE = "column", "scale of", "categories of", "missing values of"
"""first words of the causes in a table; the name of a column follows"""
RESERVED_CHART_NAMES = ("class gone", "class more often", "features", "shape", "classes", "answers")
"""names of the charts that are of no single statistic"""
DISTANCE_COLUMN, OUTLIER_COLUMN = -2, -1
"""columns of the two statistics of the model's features, which end every schema"""


@dataclass(frozen=True, kw_only=True)
class WatchedStatistic:
    """One charted statistic, with what its readers need to know of it."""

    name: str
    source: Literal["input", "output", "features"] = "input"
    """what it is computed from: the input of the model, its output or its features"""
    unit: str = "times"
    """unit of a shift; `times`: the statistic is a logarithm, and its shift a ratio"""
    unit_factor: float = 1.0
    """factor that converts a shift to the unit"""
    condition_weight: float = 1.0
    """weight in the choice of the nearest known condition; of statistics of the input only"""
    cause_weight: float = 1.0
    """weight in the search for the cause of a drift"""
    onset_weight: float = 1.0
    """weight in the search for the step at which a change began"""
    is_binary: bool = False
    """whether it is 0 or 1, such as a missing value"""
    cause: str = ""
    """cause that is named where this statistic has moved; empty for images, whose causes are corruptions"""
    group: str = ""
    """statistics of one group, such as those of one column, are named as one cause: the one that has moved most"""


@dataclass(frozen=True)
class StatisticSchema:
    """Charted statistics of a reference profile, in the order of their columns: of the input, the output, the features.

    The columns of `ImageFeatures.statistics`, which holds rows and texts too, are all but the last two.
    """

    kind: ProfileKind
    statistics: tuple[WatchedStatistic, ...]
    has_accuracy: bool = True
    """whether the classes are labels; false where they are bins of a number, of which a share is no accuracy"""

    def __len__(self) -> int:
        return len(self.statistics)

    @property
    def example_name(self) -> str:
        """What the examples are called in verdicts, in the plural."""
        return EXAMPLE_NAMES[self.kind]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all charted statistics, in order."""
        return tuple(statistic.name for statistic in self.statistics)

    @property
    def input_count(self) -> int:
        """Number of statistics of the input, which come first."""
        return sum(statistic.source == "input" for statistic in self.statistics)

    @cached_property
    def condition_weights(self) -> FloatArray:
        """Weight of each statistic of the input in the choice of the nearest condition, (statistics of the input,)."""
        return np.array([entry.condition_weight for entry in self.statistics[: self.input_count]], np.float64)

    @cached_property
    def cause_weights(self) -> FloatArray:
        """Weight of each statistic in the search for a cause, (statistics,)."""
        return np.array([statistic.cause_weight for statistic in self.statistics], np.float64)

    @cached_property
    def onset_weights(self) -> FloatArray:
        """Weight of each statistic in the search for the start of a change, (statistics,)."""
        return np.array([statistic.onset_weight for statistic in self.statistics], np.float64)

    @cached_property
    def is_binary(self) -> NDArray[np.bool_]:
        """Whether each statistic is 0 or 1, (statistics,)."""
        return np.array([statistic.is_binary for statistic in self.statistics])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the schema as arrays by name, to be stored in a file: one array for each field of the statistics."""
        arrays = {field.name: np.array(self._column(field.name)) for field in fields(WatchedStatistic)}
        return arrays | {"kind": np.array(self.kind), "has_accuracy": np.array(self.has_accuracy)}

    def _column(self, field_name: str) -> list[Any]:
        return [getattr(statistic, field_name) for statistic in self.statistics]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "StatisticSchema":
        """Build the schema from the arrays of `to_arrays`; a missing one is a KeyError, an unknown kind is refused."""
        kind = str(arrays["kind"])
        if kind not in get_args(ProfileKind):
            raise EquipoiseError(
                "reference-unusable",
                f"cannot use the reference: it is of the unknown kind {kind!r}",
                "publish the bundle again",
            )
        columns = [arrays[field.name].tolist() for field in fields(WatchedStatistic)]
        names = [field.name for field in fields(WatchedStatistic)]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        statistics = tuple(WatchedStatistic(**row) for row in rows)
        return cls(cast("ProfileKind", kind), statistics, bool(arrays["has_accuracy"]))


def build_schema(
    kind: ProfileKind,
    inputs: Sequence[WatchedStatistic],
    outputs: Sequence[WatchedStatistic],
    has_accuracy: bool = True,
) -> StatisticSchema:
    """Build a schema from the statistics of the input and of the output; those of the features are added.

    Statistics of the input, which columns of a table are named in, get another name where theirs is taken.
    """
    outlier_unit = f"of the {EXAMPLE_NAMES[kind]}"
    features = (
        WatchedStatistic(name="distance", source="features", unit="of at most 2", cause_weight=0.0),
        WatchedStatistic(name="strange", source="features", unit=outlier_unit, cause_weight=0.0, is_binary=True),
    )
    taken = {*RESERVED_CHART_NAMES, *(statistic.name for statistic in (*outputs, *features))}
    renamed = []
    for statistic in inputs:
        name = statistic.name
        while name in taken:
            name = f"input {name}"
        taken.add(name)
        renamed.append(replace(statistic, name=name))
    return StatisticSchema(kind, (*renamed, *outputs, *features), has_accuracy)
