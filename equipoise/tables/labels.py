"""The column that a model of a table predicts: a number, or one of several classes."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from equipoise.number_bounds import FiniteNumber, PositiveNumber
from equipoise.tables.columns import ColumnValues, parse_numbers, unusable_value
from equipoise.type_aliases import AnyArray, FloatArray

LabelKind = Literal["number", "class"]


@dataclass(frozen=True, kw_only=True)
class TableLabel:
    """Column that is predicted, with the statistics of the training split."""

    name: str
    """name of the column"""
    kind: LabelKind
    """whether the answer is a number or a class"""
    mean: FiniteNumber = 0.0
    """mean of the numbers in the training split"""
    scale: PositiveNumber = 1.0
    """standard deviation of the numbers in the training split"""
    classes: tuple[str, ...] = ()
    """names of the classes, in the order of the scores"""

    def encode_values(self, values: ColumnValues) -> AnyArray:
        """Return targets: standardized numbers as float32, or indices of classes as int64."""
        if self.kind == "number":
            return np.asarray((parse_numbers(self.name, "number", values) - self.mean) / self.scale, np.float32)
        indices = {name: index for index, name in enumerate(self.classes)}
        names = [format_class(value) for value in values]
        for row, name in enumerate(names):
            if name not in indices:
                raise unusable_value(row, self.name, values[row], f"one of {len(self.classes)} known classes")
        return np.array([indices[name] for name in names], np.int64)

    def decode_numbers(self, outputs: FloatArray) -> FloatArray:
        """Return predicted numbers in the unit of the column."""
        return outputs * self.scale + self.mean


def format_class(value: object) -> str:
    """Return the name of the class of a label: its text, its whole number, or true or false."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)
