"""Columns of a table as its training split has them: their kinds and statistics, and which are of no use."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import EquipoiseError
from equipoise.tables.columns import ColumnKind, ColumnValues, TableColumn
from equipoise.type_aliases import FloatArray
from equipoise.workloads.table.series_values import is_iso_date
from equipoise.workloads.table.table_files import TableData

MIN_CATEGORY_ROWS = 2  # of the training split; a rarer text counts as unknown, and trains the code of unknown texts
MAX_CATEGORIES = 10_000  # the most frequent ones
MIN_DISTINCT_NUMBERS = 20  # fewer texts that read as numbers may be categories: '1', '2', '3', '4 or more'
MIN_NUMBER_SHARE = 0.9  # of the distinct texts of a column that is one of numbers or dates with a few texts in it


def fit_columns(
    data: TableData, series: Mapping[str, tuple[ColumnKind, ColumnValues]], train: NDArray[np.int64]
) -> tuple[tuple[TableColumn, ...], dict[str, str]]:
    """Return the columns to predict from, and why each of the others is ignored."""
    columns: list[TableColumn] = []
    ignored: dict[str, str] = {}
    for name, (kind, values) in series.items():
        fitted = (
            fit_number_column(data, name, kind, values, train)
            if isinstance(values, np.ndarray)
            else fit_category_column(data, name, values, train)
        )
        if isinstance(fitted, str):
            ignored[name] = fitted
        else:
            columns.append(fitted)
    if not columns:
        reasons = ", ".join(f"{name!r} ({reason})" for name, reason in ignored.items())
        raise EquipoiseError("dataset-invalid", f"there is no column to predict from: {reasons}")
    return tuple(columns), ignored


def fit_number_column(
    data: TableData, name: str, kind: ColumnKind, values: FloatArray, train: NDArray[np.int64]
) -> TableColumn | str:
    """Return a column of numbers, booleans or dates, or why it is of no use."""
    require_no_infinity(data, name, values)
    if kind == "number" and are_row_numbers(values):
        return "it numbers the rows"
    train_values = values[train]
    numbers = train_values[~np.isnan(train_values)]
    has_missing = len(numbers) < len(train_values)
    if not len(numbers):
        return "it has no values in the training split"
    mean, scale = measure_spread(name, numbers)
    if scale == 0 and not has_missing:
        return "it has one value in the whole training split"
    return TableColumn(name=name, kind=kind, mean=mean, scale=scale or 1.0, has_missing=has_missing)


def measure_spread(name: str, numbers: FloatArray) -> tuple[float, float]:
    """Return the mean and the standard deviation of numbers; refuse numbers too large or too close for it."""
    if numbers.min() == numbers.max():  # rounding of the mean would give a tiny deviation
        return float(numbers[0]), 0.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean, scale = float(numbers.mean()), float(numbers.std())
    if scale == 0:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot use column {name!r}: its numbers differ by {np.ptp(numbers):g}, which is too little to square",
            "rescale it",
        )
    if not np.isfinite(scale):
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot use column {name!r}: it has a number of {np.abs(numbers).max():g}, which is too large to square",
            "rescale it",
        )
    return mean, scale


def require_no_infinity(data: TableData, name: str, values: FloatArray) -> None:
    """Refuse a column with an infinite number."""
    if len(rows := np.flatnonzero(np.isinf(values))):
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot use column {name!r}: it has {values[rows[0]]} in {data.locate_row(int(rows[0]))}",
            "replace it by a number, or leave out the row",
        )


def are_row_numbers(values: FloatArray) -> bool:
    """Return whether the values are consecutive whole numbers, each once."""
    ordered = np.sort(values)  # NaN comes last, and differs from all
    return bool((np.diff(ordered) == 1).all() and float(ordered[0]).is_integer())


def fit_category_column(
    data: TableData, name: str, values: ColumnValues, train: NDArray[np.int64]
) -> TableColumn | str:
    """Return a column of texts, or why it is of no use."""
    require_no_mixture(data, name, values)
    train_values = [values[index] for index in train]
    counts = Counter(value for value in train_values if isinstance(value, str))
    num_texts = counts.total()
    if not num_texts:
        return "it has no values in the training split"
    if len(counts) == 1 and num_texts == len(train):
        return "it has one value in the whole training split"
    if len(counts) > num_texts / 2:
        return "most of its texts stand in one row only"
    frequent = [text for text, count in counts.most_common(MAX_CATEGORIES) if count >= MIN_CATEGORY_ROWS]
    return TableColumn(name=name, kind="category", categories=tuple(sorted(frequent)))


def require_no_mixture(data: TableData, name: str, values: ColumnValues) -> None:
    """Refuse a column of texts nearly all of which are numbers or dates: a text such as '?' would spoil it unseen."""
    distinct = {value for value in values if isinstance(value, str)}
    if len(distinct) <= MIN_DISTINCT_NUMBERS:
        return
    for noun, is_of_kind in (("number", is_number), ("date", is_iso_date)):
        texts = {text for text in distinct if not is_of_kind(text)}
        if texts and len(texts) <= (1 - MIN_NUMBER_SHARE) * len(distinct):
            row = next(index for index, value in enumerate(values) if value in texts)
            raise EquipoiseError(
                "dataset-invalid",
                f"cannot use column {name!r}: it has the text {values[row]!r:.80} in {data.locate_row(row)} and {noun}s"
                " in most others",
                f"replace it by a {noun}, or leave the cell empty",
            )


def is_number(text: str) -> bool:
    """Return whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
