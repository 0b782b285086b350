"""Columns of a table by name: as numbers, with NaN where one is missing, or as categories, with '' for missing ones."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import EquipoiseError
from equipoise.type_aliases import AnyArray

Columns = Mapping[str, AnyArray]
"""columns of a table by name: floats with NaN where a value is missing, or strings with None or '' where it is"""


def stack_numeric_values(columns: Columns, names: Sequence[str], row_count: int) -> NDArray[np.float64]:
    """Return (rows, names) the values of numeric columns."""
    return np.stack([np.zeros(row_count), *(numeric_values(columns, name) for name in names)], 1)[:, 1:]


def numeric_values(columns: Columns, name: str) -> NDArray[np.float64]:
    """Return a numeric column, with NaN for infinite values too; refuse one that is missing or holds no numbers."""
    try:
        values = np.asarray(find_column(columns, name), np.float64)
    except (TypeError, ValueError):
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot watch the column {name!r}: it holds something other than numbers",
            "give the columns that the reference was made of",
        ) from None
    return np.where(np.isfinite(values), values, np.nan)


def category_values(columns: Columns, name: str) -> AnyArray:
    """Return a column of categories as strings (object), with '' for missing values."""
    values = np.asarray(find_column(columns, name), dtype=object)
    return np.array(["" if is_missing(value) else str(value) for value in values], dtype=object)


def is_missing(value: object) -> bool:
    """Return whether a value of a column of categories is missing: None, NaN or an empty string."""
    return value is None or value == "" or value != value


def find_column(columns: Columns, name: str) -> AnyArray:
    """Return a column; refuse rows that lack it."""
    if name not in columns:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot watch rows without the column {name!r} of the reference",
            "give the columns that it was made of",
        )
    return columns[name]
