"""Columns of a table by name: as numbers, with NaN where one is missing, or as categories, with '' for missing ones."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

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


def read_csv_columns(path: Path) -> dict[str, AnyArray]:
    """Read the columns of a CSV file with a header: as numbers where all values are, otherwise as strings.

    Empty cells are missing values. Refuses a file without rows, or with rows of another length than the header.
    """
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = [row for row in csv.reader(file) if row] or [[]]
    if not rows:
        raise EquipoiseError(
            "dataset-invalid", f"cannot read rows from {path}: it has none", "give a CSV with a header"
        )
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if wrong is not None:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot read {path}: line {wrong} has another number of cells than the header",
            "write one cell for each column",
        )
    return {name: parse_column([row[index] for row in rows]) for index, name in enumerate(header)}


def parse_column(cells: Sequence[str]) -> AnyArray:
    """Return the cells of a column as numbers with NaN for empty ones, or as strings if one of them is no number."""
    try:
        return np.array([float(cell) if cell.strip() else np.nan for cell in cells], np.float64)
    except ValueError:
        return np.array([cell.strip() for cell in cells], dtype=object)
