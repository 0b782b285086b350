"""Label of a table: which column it is, and whether it is a number or a class."""

from collections import Counter
from dataclasses import replace
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.tables.columns import ColumnKind, ColumnValues
from equipoise.tables.labels import TableLabel, format_class
from equipoise.type_aliases import AnyArray, FloatArray
from equipoise.workloads.table.column_fit import measure_spread, require_no_infinity, require_no_mixture
from equipoise.workloads.table.table_files import TableData

MAX_NUMBER_CLASSES = 10  # distinct whole numbers that are taken for classes
MAX_CLASSES = 1000
MIN_CLASS_ROWS = 8  # so that a class can be split into four parts
MIN_ROWS = 20
MAX_SHOWN_COLUMNS = 30  # in a message


def require_label(data: TableData, label: str | None) -> str:
    """Return the name of the label; refuse one that is missing or no column of the table."""
    names = [str(name) for name in data.frame.columns]
    if label in names:
        return label
    if label is None:
        problem, hint = "missing: --label, the column to predict", ""
    else:
        problem = f"there is no column {label!r} to predict"
        by_lower_case = {name.lower(): name for name in names}
        matches = get_close_matches(label.lower(), by_lower_case, 1)
        hint = "".join(f"did you mean {by_lower_case[match]!r}? " for match in matches)
    shown = ", ".join(names[:MAX_SHOWN_COLUMNS])
    others = f" and {len(names) - MAX_SHOWN_COLUMNS:,} others" if len(names) > MAX_SHOWN_COLUMNS else ""
    raise EquipoiseError(
        "option-missing" if label is None else "dataset-invalid", problem, f"{hint}choose one of: {shown}{others}"
    )


def read_label(data: TableData, name: str, kind: ColumnKind, values: ColumnValues) -> tuple[TableLabel, AnyArray]:
    """Return a label without statistics yet, with the numbers or the indices of classes of all rows."""
    if len(values) < MIN_ROWS:
        raise EquipoiseError(
            "dataset-invalid",
            f"the table has {pluralize(len(values), 'row')}",
            f"give at least {MIN_ROWS}: they are split into four parts",
        )
    require_complete_label(data, name, values)
    if kind == "date":
        raise EquipoiseError(
            "dataset-invalid", f"cannot predict column {name!r}: it holds dates", "give a label of numbers or classes"
        )
    if not isinstance(values, np.ndarray) and len(set(values)) > len(values) / MIN_CLASS_ROWS:  # too many for classes
        require_no_mixture(data, name, values)
    if isinstance(values, np.ndarray) and kind == "number":
        require_no_infinity(data, name, values)
        if not are_whole_number_classes(values):
            return TableLabel(name=name, kind="number"), values
    labels = [bool(value) if kind == "boolean" else value for value in values]
    classes = tuple(format_class(value) for value in sorted(set(labels)))  # type: ignore[type-var]  # of one type
    label = TableLabel(name=name, kind="class", classes=classes)
    require_rows_per_class(name, Counter(map(format_class, labels)))
    return label, label.encode_values(labels)


def fit_label(label: TableLabel, train_values: FloatArray) -> TableLabel:
    """Return a label of numbers with the statistics of the training split."""
    mean, scale = measure_spread(label.name, train_values)
    if scale == 0:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot predict column {label.name!r}: it is {mean:g} in the whole training split",
            "give a label that varies",
        )
    return replace(label, mean=mean, scale=scale)


def require_complete_label(data: TableData, name: str, values: ColumnValues) -> None:
    """Refuse a label with missing values, and name the first row without one."""
    is_missing: NDArray[np.bool_] = (
        np.isnan(values) if isinstance(values, np.ndarray) else np.array([value is None for value in values])
    )
    if len(rows := np.flatnonzero(is_missing)):
        raise EquipoiseError(
            "dataset-invalid",
            f"the label {name!r} is missing in {pluralize(len(rows), 'row')}: the first is"
            f" {data.locate_row(int(rows[0]))}",
            "leave out rows without a label",
        )


def are_whole_number_classes(values: FloatArray) -> bool:
    """Return whether numbers are taken for classes: whole ones, at most ten different ones, each in eight rows."""
    distinct, counts = np.unique(values, return_counts=True)
    is_whole = bool((distinct == np.rint(distinct)).all())
    return len(distinct) == 1 or (is_whole and len(distinct) <= MAX_NUMBER_CLASSES and counts.min() >= MIN_CLASS_ROWS)


def require_rows_per_class(name: str, counts: Counter[str]) -> None:
    """Refuse a label with a single class, with too many, or with too few rows of one."""
    if len(counts) == 1:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot predict column {name!r}: all rows have the class {next(iter(counts))!r}",
            "give rows of at least two classes",
        )
    rare = [f"{label} ({count})" for label, count in counts.most_common() if count < MIN_CLASS_ROWS]
    if len(counts) > MAX_CLASSES or len(rare) > len(counts) / 2:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot predict column {name!r}: it has {len(counts):,} different texts in {counts.total():,} rows",
            "give a label of numbers or of classes",
        )
    if rare:
        shown = ", ".join(rare[:5]) + (", ..." if len(rare) > 5 else "")
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot predict column {name!r}: it has classes with fewer than {MIN_CLASS_ROWS} rows: {shown}",
            "add rows of them, or leave theirs out",
        )
