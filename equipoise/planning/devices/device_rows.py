"""Rows of tables by the kind of worker that they were timed on, from the optional column `device`."""

from pathlib import Path

import numpy as np
import pandas as pd

from equipoise.errors import EquipoiseError

DEVICE_COLUMN = "device"
MAX_NAME_LENGTH = 60  # of a device, in characters
MIN_DEVICE_ROWS = 2  # as many as a table needs


def parse_devices(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the names in `device` stripped; a table without the column as it is."""
    if DEVICE_COLUMN not in table:
        return table
    names = table[DEVICE_COLUMN].str.strip()
    wrong = ~names.map(lambda name: name.isprintable() and len(name) <= MAX_NAME_LENGTH).to_numpy(bool)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise EquipoiseError(
            "table-invalid",
            f"{path}, row {row + 2}, column {DEVICE_COLUMN}: must be a name of up to {MAX_NAME_LENGTH} characters or"
            f" empty, got {names.iloc[row][: MAX_NAME_LENGTH + 1]!a}",
        )
    return table.assign(**{DEVICE_COLUMN: names})


def require_several_rows(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table; refuse one in which a device has a single row, to which nothing can be fitted."""
    for device in list_devices(table):
        if len(rows := select_device_rows(table, device)) < MIN_DEVICE_ROWS:
            raise EquipoiseError(
                "measurements-missing",
                f"{path}, row {rows.index[0] + 2}: it is the only row of {format_device(device)}, and a curve needs at"
                f" least {MIN_DEVICE_ROWS}",
                "time another batch or number of workers on it, or remove the row",
            )
    return table


def list_devices(table: pd.DataFrame | None) -> list[str]:
    """Return the names of the devices in the order of the table; the name is empty for rows without one."""
    if table is None:
        return []
    return table[DEVICE_COLUMN].drop_duplicates().tolist() if DEVICE_COLUMN in table else [""]


def select_device_rows(table: pd.DataFrame, device: str) -> pd.DataFrame:
    """Return the rows of one device; all rows of a table without the column."""
    return table[table[DEVICE_COLUMN] == device] if DEVICE_COLUMN in table else table


def select_network_rows(table: pd.DataFrame | None, device: str) -> pd.DataFrame | None:
    """Return the timings of the network between workers of one device: those of it, or of no device."""
    if table is None or DEVICE_COLUMN not in table:
        return table
    selected: pd.DataFrame = table[table[DEVICE_COLUMN].isin([device, ""])].reset_index(drop=True)
    return None if selected.empty else selected


def format_device(device: str | None) -> str:
    """Format the name of a device for a message."""
    return device or "the device without a name"
