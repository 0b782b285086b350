"""Values of a column of a data frame, and what kind of column it is."""

import re
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from equipoise.errors import EquipoiseError
from equipoise.tables.columns import ColumnKind, ColumnValues, parse_date, parse_numbers
from equipoise.type_aliases import FloatArray

ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]|$)")


def read_series(series: "pd.Series[Any]") -> tuple[ColumnKind, ColumnValues]:
    """Return the kind of a column and its values: numbers with NaN, or texts with None, where one is missing."""
    if types.is_bool_dtype(series.dtype):
        return "boolean", np.asarray(series.to_numpy(np.float64, na_value=np.nan), np.float64)
    if types.is_numeric_dtype(series.dtype) and not types.is_complex_dtype(series.dtype):
        return "number", np.asarray(series.to_numpy(np.float64, na_value=np.nan), np.float64)
    if types.is_datetime64_any_dtype(series.dtype):
        return "date", count_days(series)
    return read_objects(str(series.name), series)


def count_days(series: "pd.Series[Any]") -> FloatArray:
    """Return times as numbers of days since 1970, NaN for missing ones; without a time zone they are in UTC."""
    moments = pd.to_datetime(series, utc=True)
    return np.asarray((moments - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), np.float64)


def read_objects(name: str, series: "pd.Series[Any]") -> tuple[ColumnKind, ColumnValues]:
    """Return the kind and the values of a column of Python objects; refuse a mixture and what no model can take."""
    is_missing = series.isna().to_numpy()
    values = [None if missing else value for value, missing in zip(series.array, is_missing, strict=True)]
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        texts = [value for value in values if isinstance(value, str)]
        return ("date", parse_numbers(name, "date", values)) if are_dates(texts) else ("category", values)
    if kinds <= {bool, np.bool_}:
        return "boolean", parse_numbers(name, "boolean", values)
    if all(issubclass(kind, int | float | Decimal | np.integer | np.floating) for kind in kinds) and bool not in kinds:
        return "number", parse_numbers(name, "number", values)
    if all(issubclass(kind, date) for kind in kinds):
        return "date", parse_numbers(name, "date", values)
    names = " and ".join(sorted(kind.__name__ for kind in kinds))
    raise EquipoiseError(
        "dataset-invalid",
        f"cannot use column {name!r}: it holds values of type {names}",
        "give numbers, true and false, dates or texts, one kind in each column",
    )


def are_dates(texts: list[str]) -> bool:
    """Return whether there are texts, and all are dates or times in ISO 8601."""
    return bool(texts) and all(map(is_iso_date, texts))


def is_iso_date(text: str) -> bool:
    """Return whether a text is a date or a time in ISO 8601."""
    if not ISO_DATE.match(text):
        return False
    try:
        parse_date(text)
    except ValueError:
        return False
    return True
