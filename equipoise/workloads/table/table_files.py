"""Reading of a table from CSV and parquet files."""

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from equipoise.errors import EquipoiseError
from equipoise.formatting import first_error_line, make_printable
from equipoise.storage.node_cache import fetch_data
from equipoise.workloads.table.csv_files import read_csv

TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet")
UNREADABLE_ERRORS = (ValueError, OSError, EOFError, zlib.error)


@dataclass(frozen=True)
class TableData:
    """Rows of one or more files."""

    frame: pd.DataFrame
    """all rows, numbered from 0"""
    files: Sequence[tuple[Path, int]]
    """each file with its number of rows, in the order of the rows"""

    def locate_row(self, index: int) -> str:
        """Describe where a row stands, counted from 1 without the header, such as 'row 17 of points.csv'."""
        for path, count in self.files:
            if index < count:
                return f"row {index + 1:,} of {path.name}"
            index -= count
        raise IndexError(index)


def read_table(location: str, text_columns: Collection[str] = (), min_columns: int = 2) -> TableData:
    """Read a CSV or parquet file, or all such files of a folder or behind its URL as one table.

    Values of `text_columns` stay texts in CSV files, whatever they look like.
    """
    root = fetch_data(location)
    paths = list_table_files(root, location)
    frames = [
        read_table_file(path, location if path == root else f"{location}/{path.name}", text_columns, min_columns)
        for path in paths
    ]
    for path, frame in zip(paths, frames, strict=True):
        if set(frame.columns) != set(frames[0].columns):
            differing = ", ".join(map(repr, sorted(set(frame.columns) ^ set(frames[0].columns), key=str)))
            raise EquipoiseError(
                "dataset-invalid",
                f"cannot read {location} as one table: {path.name} and {paths[0].name} do not both have {differing}",
                "give files with the same columns",
            )
    files = [(path, len(frame)) for path, frame in zip(paths, frames, strict=True)]
    return TableData(pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0], files)


def list_table_files(root: Path, location: str) -> list[Path]:
    """Return the files of a table: the one at a path, or those in a folder by name; messages name `location`."""
    if root.is_file():
        if not root.name.lower().endswith(TABLE_SUFFIXES):
            raise EquipoiseError(
                "dataset-invalid",
                f"cannot read --data {location}: a table is a file with the suffix {', '.join(TABLE_SUFFIXES)}",
                "convert it",
            )
        return [root]
    if root.exists() and not root.is_dir():
        raise EquipoiseError(
            "path-kind", f"--data {location} is neither a file nor a folder", "give a file or a folder"
        )
    if not root.is_dir():
        raise EquipoiseError("path-missing", f"--data {location} does not exist", "give a CSV or parquet file")
    paths = sorted(
        path
        for path in root.iterdir()
        if path.is_file() and path.name.lower().endswith(TABLE_SUFFIXES) and not path.name.startswith((".", "_"))
    )
    if not paths:
        raise EquipoiseError(
            "dataset-invalid", f"--data {location} holds no file with the suffix {', '.join(TABLE_SUFFIXES)}"
        )
    return paths


def read_table_file(
    path: Path, location: str, text_columns: Collection[str] = (), min_columns: int = 2
) -> pd.DataFrame:
    """Read a CSV or parquet file, its columns named by texts; messages name `location`."""
    try:
        frame = read_parquet(path) if path.suffix.lower() == ".parquet" else read_csv(path, text_columns)
    except EquipoiseError as error:
        raise error.within(f"cannot read {location}") from error
    except UNREADABLE_ERRORS as error:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot read {location}: {make_printable(first_error_line(error))}",
            "write it again, or leave it out",
        ) from error
    if len(set(frame.columns)) < len(frame.columns):
        names = frame.columns[frame.columns.duplicated()]
        raise EquipoiseError("dataset-invalid", f"cannot read {location}: it has two columns {names[0]!r}")
    if len(frame.columns) < min_columns:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot read {location}: it has only the column {', '.join(map(repr, frame.columns))}",
            "give a header and columns that are separated by commas",
        )
    return frame


def read_parquet(path: Path) -> pd.DataFrame:
    """Read a parquet file without its index."""
    try:
        frame = pd.read_parquet(path).reset_index(drop=True)
    except ImportError as error:
        raise EquipoiseError("package-missing", "pyarrow is not installed", "run pip install pyarrow") from error
    return frame.rename(columns=str)
