"""Peak memory of a worker at any batch, from the rows of one way of exchange in system.csv.

It is linear in the batch: what a worker holds whatever the batch, and activations.
"""

import numpy as np
import pandas as pd

from equipoise.planning.exchanges.exchange_name import parse_exchange


def find_peak(rows: pd.DataFrame, workers: int, batch: int) -> float | None:
    """Return the peak bytes of a worker at a setting: measured there, or by other batches; None if nothing tells.

    `rows` are of one way of exchange. Other numbers of workers tell nothing of parts of a model, which are smaller the
    more workers there are; whole models take as much on each of several workers.
    """
    if "peak_bytes" not in rows:
        return None
    known = rows[rows.peak_bytes.notna()]
    here = known[known.workers == workers]
    if len(measured := here[here.batch == batch]):
        return float(measured.peak_bytes.max())
    others = known[known.workers > 1] if workers > 1 and not has_parts(rows) else here
    for group in (here, others):
        if group.batch.nunique() > 1:
            return extrapolate_peak(group, batch)
    return None


def has_parts(rows: pd.DataFrame) -> bool:
    """Return whether the workers of rows hold a part of the model each."""
    return "exchange" in rows and len(rows) > 0 and parse_exchange(rows.exchange.iloc[0]).sharding != "none"


def extrapolate_peak(rows: pd.DataFrame, batch: int) -> float:
    """Return the peak bytes at a batch by a line through rows of several others; it does not fall with the batch."""
    slope, _ = np.polyfit(rows.batch.astype(float), rows.peak_bytes.astype(float), 1)
    slope = max(0.0, float(slope))
    return max(0.0, float(rows.peak_bytes.mean() + slope * (batch - rows.batch.mean())))
