"""Specification of a table: its columns and label, which turn rows into inputs of a model."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Self

import numpy as np

from equipoise.errors import EquipoiseError
from equipoise.storage.json_decoding import decode_json_value
from equipoise.tables.columns import ColumnValues, TableColumn
from equipoise.tables.labels import TableLabel
from equipoise.type_aliases import AnyArray, JsonObject

TableInputs = AnyArray | tuple[AnyArray, AnyArray]
"""numbers as float32 (rows, features), codes of categories as int64 (rows, columns), or both where there are both"""


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """Columns that a model predicts from, and the label that it predicts."""

    columns: tuple[TableColumn, ...]
    """columns that the model predicts from, in the order of the table"""
    label: TableLabel
    """column that it predicts"""
    ignored: dict[str, str] = field(default_factory=dict)
    """why each column that rows may have besides is not used, by its name"""

    @property
    def number_columns(self) -> list[TableColumn]:
        """Columns of numbers, booleans and dates."""
        return [column for column in self.columns if column.kind != "category"]

    @property
    def category_columns(self) -> list[TableColumn]:
        """Columns of texts, each with its categories."""
        return [column for column in self.columns if column.kind == "category"]

    @property
    def feature_names(self) -> list[str]:
        """Names of the number features, in the order in which the model takes them."""
        return [name for column in self.number_columns for name in column.feature_names]

    @property
    def category_sizes(self) -> list[int]:
        """Number of codes of each category column."""
        return [len(column.categories) + 1 for column in self.category_columns]

    def encode_rows(self, rows: Sequence[Mapping[str, object]]) -> TableInputs:
        """Return the inputs of a model for rows, which are values by the names of their columns; None is missing."""
        for index, row in enumerate(rows):
            self._require_columns(index, row)
        return self.encode_columns({column.name: [row[column.name] for row in rows] for column in self.columns})

    def encode_columns(self, values: Mapping[str, ColumnValues]) -> TableInputs:
        """Return the inputs of a model for the values of all columns."""
        numbers = [column.encode_numbers(values[column.name]) for column in self.number_columns]
        codes = [column.encode_categories(values[column.name]) for column in self.category_columns]
        if not codes:
            return np.concatenate(numbers, axis=1, dtype=np.float32)
        stacked_codes = np.stack(codes, axis=1)
        return (np.concatenate(numbers, axis=1, dtype=np.float32), stacked_codes) if numbers else stacked_codes

    def _require_columns(self, index: int, row: Mapping[str, object]) -> None:
        """Refuse a row without a value for each column, or with a column that the table does not have."""
        names = [column.name for column in self.columns]
        if missing := [name for name in names if name not in row]:
            raise EquipoiseError(
                "row-invalid",
                f"cannot use row {index + 1}: it has no column {', '.join(map(repr, missing))}",
                "give null for a value that is not known",
            )
        if unknown := [name for name in row if name not in {*names, *self.ignored, self.label.name}]:
            similar = "".join(f"; did you mean {name!r}?" for name in get_close_matches(str(unknown[0]), names, 1))
            raise EquipoiseError(
                "row-invalid",
                f"cannot use row {index + 1}: the table has no column {', '.join(map(repr, unknown))}{similar}",
                f"leave it out; its columns are {', '.join(names)}",
            )

    def to_json(self) -> JsonObject:
        """Return the specification as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, contents: object) -> Self:
        """Decode a specification; refuse one with a value that it cannot have."""
        return decode_json_value(contents, cls, code="bundle-invalid", problem="cannot read the columns of a table")
