"""Data loading as a term of step times, where other processes read batches ahead of the steps.

    seconds of a step = max(computing and exchange, seconds in which a worker's readers read its batch)

Rows of step times say by `read_ahead` that batches are read so, and by `data_seconds` how long a step waited for them.
A step that waits lasts as long as reading does, and would take its seconds without the wait if batches were ready.
Batches that lie in memory are prepared between the steps: that is a part of computing.
"""

import numpy as np
import pandas as pd

MIN_WAIT_SHARE = 0.05  # of a step, below which waits are chance: a reader that is fast enough may be late once


def find_waiting_rows(rows: pd.DataFrame) -> "pd.Series[bool]":
    """Return for each row of step times whether its steps wait for readers."""
    if "read_ahead" not in rows or "data_seconds" not in rows:
        return pd.Series(False, index=rows.index)
    return (rows.read_ahead == 1) & (rows.data_seconds.fillna(0.0) >= MIN_WAIT_SHARE * rows.seconds)


def remove_waits(rows: pd.DataFrame) -> pd.DataFrame:
    """Return step times without the waits for readers: those of computing and the exchange alone."""
    is_waiting = find_waiting_rows(rows)
    if not is_waiting.any():
        return rows
    busy = np.where(is_waiting, rows.seconds - rows.data_seconds, rows.seconds)
    return rows.assign(seconds=np.maximum(busy, np.finfo(float).tiny))


def fit_loading_seconds(rows: pd.DataFrame) -> float:
    """Return the seconds in which the readers of a worker read an example; 0 where no step waits for them."""
    waiting = rows[find_waiting_rows(rows)]
    return 0.0 if waiting.empty else float((waiting.seconds / waiting.batch).median())
