"""Rows of a file as a published model of tables takes them, with the label where the file has one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from equipoise.bundle.kinds.table_bundle import TableBundle
from equipoise.errors import EquipoiseError
from equipoise.spacing import evenly_spaced_indices
from equipoise.tables.columns import ColumnValues, TableColumn
from equipoise.tables.labels import format_class
from equipoise.tables.spec import TableSpec
from equipoise.workloads.table.build import inputs_to_tensors
from equipoise.workloads.table.series_values import read_series
from equipoise.workloads.table.table_files import read_table


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a file, of which a model takes some columns."""

    frame: pd.DataFrame
    """all columns of the rows"""
    numbers: Sequence[int]
    """number of each row in the file, from 1 without the header"""
    total: int
    """number of rows of the file"""
    values: Mapping[str, ColumnValues]
    """values of each column that the model takes"""
    inputs: Sequence[Tensor]
    """tensors that the model takes for the rows"""


def read_table_rows(model: TableBundle, path: Path, max_rows: int) -> TableRows:
    """Read up to `max_rows` rows of a CSV or parquet file, evenly spaced; refuse those that the model cannot take."""
    spec = model.spec
    frame = read_table(str(path), [column.name for column in spec.category_columns], min_columns=1).frame
    if not len(frame):
        raise EquipoiseError("dataset-invalid", f"cannot check --data {path}: it has no rows", "give rows to compare")
    require_columns(spec, path, [str(name) for name in frame.columns])
    try:
        values = {column.name: read_model_column(column, frame[column.name]) for column in spec.columns}
        inputs = inputs_to_tensors(spec.encode_columns(values))
    except EquipoiseError as error:
        raise error.within(f"cannot check --data {path}") from error
    places = evenly_spaced_indices(len(frame), max_rows)
    return TableRows(
        frame.iloc[places],
        (places + 1).tolist(),
        len(frame),
        {name: select_values(column, places) for name, column in values.items()},
        [tensor[torch.from_numpy(places)] for tensor in (inputs if isinstance(inputs, tuple) else (inputs,))],
    )


def select_values(values: ColumnValues, places: NDArray[np.int64]) -> ColumnValues:
    """Return the values at some places."""
    return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places]


def require_columns(spec: TableSpec, path: Path, names: Sequence[str]) -> None:
    """Refuse a table without a column that the model takes; further columns do no harm."""
    needed = [column.name for column in spec.columns]
    if missing := [name for name in needed if name not in names]:
        others = {name.casefold(): name for name in names if name not in needed}
        matches = [match for name in missing for match in get_close_matches(name.casefold(), others, 1)]
        similar = f"rename {others[matches[0]]!r}, or " if matches else ""
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot check --data {path}: it has no column {', '.join(map(repr, missing))}",
            f"{similar}give the columns that the model takes: {', '.join(needed)}",
        )


def read_model_column(column: TableColumn, series: "pd.Series[Any]") -> ColumnValues:
    """Return the values of a column as a model takes them; refuse numbers in place of dates and the reverse."""
    if column.kind == "category":
        is_missing = series.isna().to_numpy()
        return [None if missing else format_class(value) for value, missing in zip(series, is_missing, strict=True)]
    kind, values = read_series(series)
    is_empty = bool(series.isna().all())
    if (kind == "date") != (column.kind == "date") and kind != "category" and not is_empty:
        nouns = {True: "dates", False: "numbers"}
        raise EquipoiseError(
            "row-invalid",
            f"column {column.name!r} has {nouns[kind == 'date']} where {nouns[column.kind == 'date']} must be",
            "write it as in the table that the model was trained on",
        )
    return np.full(len(series), np.nan) if is_empty else values
