"""Columns of a table: how the values of each become features of a model.

Numbers, booleans and dates are standardized by the training split: (value - mean) / scale. A missing one becomes 0, the
mean, with a second feature that says so where the training split has missing ones too. Texts become the places of their
categories, from 1 on; 0 stands for a missing text and for one that is none of the categories.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import EquipoiseError
from equipoise.number_bounds import FiniteNumber, PositiveNumber
from equipoise.type_aliases import FloatArray

ColumnKind = Literal["number", "boolean", "date", "category"]
ColumnValues = FloatArray | Sequence[object]
"""values of a column: numbers with NaN for missing ones, or Python objects with None for missing ones"""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS_PER_DAY = 86400
MAX_SHOWN_CHARACTERS = 60  # of a value in a message


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """Column that a model predicts from, with the statistics of the training split."""

    name: str
    """name of the column"""
    kind: ColumnKind
    """what it holds; dates are numbers of days since 1970"""
    mean: FiniteNumber = 0.0
    """mean of the numbers in the training split"""
    scale: PositiveNumber = 1.0
    """standard deviation of the numbers in the training split"""
    has_missing: bool = False
    """whether the training split has missing values, so that a second feature marks them"""
    categories: tuple[str, ...] = ()
    """texts of a category column; the first has code 1"""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that stand for this column."""
        return (self.name, f"{self.name} is missing") if self.has_missing else (self.name,)

    def encode_numbers(self, values: ColumnValues) -> FloatArray:
        """Return the features of a column of numbers, booleans or dates, one row for each value."""
        numbers = parse_numbers(self.name, self.kind, values)
        with np.errstate(over="ignore"):
            standardized = (numbers - self.mean) / self.scale
            is_usable = np.isfinite(standardized.astype(np.float32)) | np.isnan(numbers)
        if not is_usable.all():
            row = int(np.argmin(is_usable))
            raise unusable_value(row, self.name, values[row], "a finite number, not too large,")
        is_missing = np.isnan(numbers)
        features = np.where(is_missing, 0.0, standardized)
        return np.stack([features, is_missing], axis=1) if self.has_missing else features[:, None]

    def encode_categories(self, values: ColumnValues) -> NDArray[np.int64]:
        """Return the codes of a column of texts."""
        codes = {category: code for code, category in enumerate(self.categories, start=1)}
        column = np.zeros(len(values), np.int64)
        for row, value in enumerate(values):
            if isinstance(value, str):
                column[row] = codes.get(value, 0)
            elif value is not None:
                raise unusable_value(row, self.name, value, "a text")
        return column


def parse_numbers(name: str, kind: ColumnKind, values: ColumnValues) -> FloatArray:
    """Return the values of a column as numbers, NaN for missing ones; refuse a value of another kind."""
    if isinstance(values, np.ndarray):
        return values
    parse, noun = PARSERS[kind]
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        try:
            numbers[row] = np.nan if value is None else parse(value)
        except (TypeError, ValueError, OverflowError):
            raise unusable_value(row, name, value, noun) from None
    return numbers


def parse_number(value: object) -> float:
    """Return a number as a float."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | Decimal | np.integer | np.floating):
        raise TypeError
    return float(value)


def parse_boolean(value: object) -> float:
    """Return 1 for true and 0 for false."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError
    return float(value)


def parse_date(value: object) -> float:
    """Return the days since 1970 of a date, a time or their text in ISO 8601; without a time zone in UTC."""
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime):
        if not isinstance(moment, date):
            raise TypeError
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH).total_seconds() / SECONDS_PER_DAY


PARSERS: dict[str, tuple[Callable[[object], float], str]] = {
    "number": (parse_number, "a number"),
    "boolean": (parse_boolean, "true or false"),
    "date": (parse_date, "a date such as 2026-11-25"),
}
"""for each kind of number: what reads a value, and what such a value is called"""


def unusable_value(row: int, name: str, value: object, noun: str) -> EquipoiseError:
    """Return the error for a value of a column that must be something else."""
    shown = f"the text {value!r}" if isinstance(value, str) else f"{value}"
    if len(shown) > MAX_SHOWN_CHARACTERS:
        shown = f"{shown[:MAX_SHOWN_CHARACTERS]}..."
    return EquipoiseError(
        "row-invalid",
        f"cannot use row {row + 1}: column {name!r} has {shown} where {noun} must be",
        "give null for a value that is not known",
    )
