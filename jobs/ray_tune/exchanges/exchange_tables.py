"""Rows of other ways of exchange in the tables of a sweep; tables of a sweep without any keep their columns.

A column `momentum` is there where asynchronous trials had another one than exact sums.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

import pandas as pd

from equipoise.config import TrainConfig
from equipoise.planning.step_time_fit import StepTimeFit
from jobs.ray_tune.exchanges.exchange_facts import seconds_in_table
from jobs.ray_tune.exchanges.exchange_trials import (
    EXCHANGE_TRIAL_COLUMNS,
    exchange_record_to_row,
    load_exchange_trials,
)
from jobs.ray_tune.trial_records import FINISHED_TRIAL_COLUMNS, load_finished_trials
from jobs.timing.exchange_step_timing import ExchangeStepTiming

RUN_COLUMNS = [*FINISHED_TRIAL_COLUMNS, "exchange", "workers", "momentum"]


def build_run_table(folder: Path, base: TrainConfig, batches: Collection[int], *, with_exchanges: bool) -> pd.DataFrame:
    """Build the rows of statistical.csv from the trials of a sweep that ended, of these global batches."""
    records = load_finished_trials(folder, base)
    others = load_exchange_trials(folder, base) if with_exchanges else []
    known = [record for record in [*records, *others] if record.config.global_batch in batches]
    rows = [exchange_record_to_row(record, base) for record in known]
    table = pd.DataFrame(rows, columns=EXCHANGE_TRIAL_COLUMNS)[RUN_COLUMNS]
    if table.momentum.isna().all():
        table = table.drop(columns="momentum")
    table = table.sort_values(["exchange", "workers", *FINISHED_TRIAL_COLUMNS[:3]])
    if not (table.exchange != "").any():
        return table[FINISHED_TRIAL_COLUMNS]
    return table.assign(workers=table.workers.astype("Int64").where(table.exchange != ""))


def add_exchange_steps(steps: pd.DataFrame, fit: StepTimeFit, timings: Sequence[ExchangeStepTiming]) -> pd.DataFrame:
    """Return the rows of system.csv with those of other ways of exchange that were timed.

    Their seconds are those of exact sums in the table times the ratio of the two that was measured in turns.
    """
    if not timings:
        return steps
    own = pd.DataFrame(
        {
            "nodes": row.nodes,
            "workers": row.workers,
            "batch": row.batch,
            "seconds": seconds_in_table(fit, row),
            "data_seconds": row.data_seconds,
            "exchange_seconds": row.exchange_seconds,
            "pace_sd": row.pace_sd,
            "gradient_bytes": steps.gradient_bytes.iloc[0],
            "exchange": row.exchange,
            "sent_bytes": row.sent_bytes,
            "encode_seconds": row.encode_seconds,
            "peak_bytes": row.peak_bytes,
        }
        for row in timings
    )
    if own.peak_bytes.isna().all():
        own = own.drop(columns="peak_bytes")
    if "read_ahead" in steps:  # the same data set
        own = own.assign(read_ahead=steps.read_ahead.iloc[0])
    return pd.concat([steps.assign(exchange=""), own], ignore_index=True)
