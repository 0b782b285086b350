"""Drift of a machine's pace over minutes, estimated from the trials of a sweep."""

import math
import statistics
from collections.abc import Iterable

import numpy as np
import pandas as pd

from equipoise.runs.record import Record

MIN_DEGREES_OF_FREEDOM = 5  # trials beyond the first of each batch size, below which no drift is estimated


def estimate_pace_drift(records: Iterable[Record]) -> float:
    """Return the standard deviation of log seconds per step between trials with the same batch size.

    0 if too few trials were run. The first lap of a trial is left out, because it starts with cold caches.
    """
    log_paces: dict[tuple[int, int, int], list[float]] = {}
    for record in records:
        if laps := record.laps[1:]:
            setting = (record.config.workers, record.config.batch_size, record.config.grad_accumulation)
            pace = sum(lap.seconds for lap in laps) / sum(lap.steps for lap in laps)
            log_paces.setdefault(setting, []).append(math.log(pace))
    degrees_of_freedom = sum(len(group) - 1 for group in log_paces.values())
    if degrees_of_freedom < MIN_DEGREES_OF_FREEDOM:
        return 0.0
    squares = sum(statistics.variance(group) * (len(group) - 1) for group in log_paces.values() if group[1:])
    return math.sqrt(squares / degrees_of_freedom)


def add_pace_noise(step_rows: pd.DataFrame, pace_drift: float) -> pd.DataFrame:
    """Return the step times with the drift added to `pace_sd`, once for their timing and once for a later run."""
    return step_rows.assign(pace_sd=np.hypot(step_rows.pace_sd, math.sqrt(2) * pace_drift))
