"""Columns of rows as drift detection compares them: numbers with NaN, or texts with '' where a value is missing.

The inputs of a model say less: a missing number may be a mean there, and a missing text one that is not known.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise.tables.columns import ColumnValues, TableColumn, parse_numbers
from equipoise.tables.spec import TableSpec
from equipoise.type_aliases import AnyArray, FloatArray

MISSING_TEXT = ""
UNKNOWN_TEXT = "\N{REPLACEMENT CHARACTER}"
"""stands for texts that a model does not know, where the text itself is not at hand"""


def read_row_columns(spec: TableSpec, rows: Sequence[Mapping[str, object]]) -> dict[str, AnyArray]:
    """Return the columns of rows that a model takes; refuse a value of another kind."""
    return read_watched_columns(spec, {column.name: [row[column.name] for row in rows] for column in spec.columns})


def read_watched_columns(spec: TableSpec, values: Mapping[str, ColumnValues]) -> dict[str, AnyArray]:
    """Return the columns that a model takes of the values of all columns of a table."""
    return {column.name: read_watched_column(column, values[column.name]) for column in spec.columns}


def read_watched_column(column: TableColumn, values: ColumnValues) -> AnyArray:
    """Return a column as numbers with NaN, or as texts with '', where a value is missing."""
    if column.kind != "category":
        return parse_numbers(column.name, column.kind, values)
    texts = np.empty(len(values), dtype=object)
    texts[:] = [MISSING_TEXT if value is None else value for value in values]
    return texts


def decode_input_columns(
    spec: TableSpec, inputs: Sequence[AnyArray], texts_of_code_0: Mapping[str, str]
) -> dict[str, AnyArray]:
    """Return the columns that the inputs of a model stand for, given what code 0 stands for in each column of texts.

    A missing number whose column had none in training is the mean of the training split.
    """
    decoded, first = {}, 0
    for column in spec.number_columns:
        end = first + len(column.feature_names)
        decoded[column.name] = decode_numbers(column, inputs[0][:, first:end])
        first = end
    for index, column in enumerate(spec.category_columns):
        texts = np.array([texts_of_code_0[column.name], *column.categories], dtype=object)
        decoded[column.name] = texts[inputs[-1][:, index]]
    return {column.name: decoded[column.name] for column in spec.columns}


def decode_numbers(column: TableColumn, features: NDArray[np.float32]) -> FloatArray:
    """Return the numbers that the features (n, 1 or 2) of a column stand for."""
    numbers = features[:, 0].astype(np.float64) * column.scale + column.mean
    return np.where(features[:, 1] > 0, np.nan, numbers) if column.has_missing else numbers
