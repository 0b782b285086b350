"""Reading of CSV files: what is no table of cells between commas is refused before pandas reads something else."""

import warnings
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from equipoise.errors import EquipoiseError

OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def read_csv(path: Path, text_columns: Collection[str] = ()) -> pd.DataFrame:
    """Read a CSV file with a header; refuse rows that are longer than it, which pandas would cut with a warning.

    Values of `text_columns` stay texts, whatever they look like.
    """
    try:
        check_header(read_header(path))
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            # by chunks a column could get two types
            return pd.read_csv(path, index_col=False, low_memory=False, dtype=dict.fromkeys(text_columns, str))
    except UnicodeDecodeError as error:
        raise EquipoiseError("dataset-invalid", "it is not UTF-8", "convert the file to UTF-8") from error
    except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
        detail = "" if isinstance(error, pd.errors.ParserWarning) else f" ({str(error).strip().rpartition(': ')[2]})"
        raise EquipoiseError(
            "dataset-invalid", f"a row has more cells than the header{detail}", "put values with commas in quotes"
        ) from error


def read_header(path: Path) -> list[str]:
    """Return the names in the first line of a CSV file, as they are written."""
    try:
        header = pd.read_csv(path, header=None, nrows=1, index_col=False, dtype=str, keep_default_na=False)
    except pd.errors.EmptyDataError as error:
        raise EquipoiseError("dataset-invalid", "it is empty", "give a header and rows") from error
    return [str(name) for name in header.iloc[0]]


def check_header(names: list[str]) -> None:
    """Refuse a header with a name twice, which pandas would change, and one without commas."""
    if repeated := [name for index, name in enumerate(names) if name and name in names[:index]]:
        raise EquipoiseError("dataset-invalid", f"it has two columns {repeated[0]!r}", "give each a name of its own")
    separators = [word for separator, word in OTHER_SEPARATORS.items() if separator in names[0]]
    if len(names) == 1 and separators:
        raise EquipoiseError(
            "dataset-invalid",
            f"its cells are separated by {separators[0]}, not by commas",
            "save it with commas between cells, and points in numbers",
        )
