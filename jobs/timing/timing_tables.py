"""Tables of a sweep's timings: written beside its plan, and fitted."""

from pathlib import Path

import pandas as pd

from equipoise.planning.parameter_servers.worker_speeds import SECONDS_BY_WORKER_COLUMN, format_seconds_by_worker
from equipoise.planning.step_time_fit import StepTimeFit, fit_step_time
from equipoise.storage.atomic import atomic_write
from jobs.timing.timing_records import TimingTables, max_repeat_error

UNKNOWN_COLUMNS = "peak_bytes", "joules"  # where a machine does not tell them


def write_timings(timings: TimingTables, out: Path) -> TimingTables:
    """Write the timings to system.csv and exchange.csv, and return them without the second timings of a setting."""
    rows = timings.steps
    if (repeat_error := max_repeat_error(rows)) is not None:
        print(f"two timings of the same setting differed by {repeat_error:.1%} at most", flush=True)
    steps = drop_unknown_columns(format_speed_column(rows[~rows["repeat"]].drop(columns="repeat")))
    write_csv(steps, out / "system.csv")
    if len(timings.exchanges):
        write_csv(timings.exchanges, out / "exchange.csv")
    return timings._replace(steps=steps)


def format_speed_column(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the step times with the seconds of each worker as text, and without them if workers are equal."""
    if SECONDS_BY_WORKER_COLUMN not in steps:  # a user's own command does not tell them
        return steps
    if not steps[SECONDS_BY_WORKER_COLUMN].map(len).any():
        return steps.drop(columns=SECONDS_BY_WORKER_COLUMN)
    return steps.assign(**{SECONDS_BY_WORKER_COLUMN: steps[SECONDS_BY_WORKER_COLUMN].map(format_seconds_by_worker)})


def drop_unknown_columns(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the step times without the columns of peak memory, energy and readers where no row has them."""
    steps = steps.drop(columns=[name for name in UNKNOWN_COLUMNS if name in steps and steps[name].isna().all()])
    if "read_ahead" not in steps:  # a user's own command does not tell it
        return steps
    return steps.astype({"read_ahead": int}) if steps.read_ahead.any() else steps.drop(columns="read_ahead")


def fit_timings(timings: TimingTables) -> StepTimeFit:
    """Fit the step times, with the exchanges that were timed alone, if any."""
    if timings.exchanges.empty:
        return fit_step_time(timings.steps)
    share = timings.exchanges.bytes / timings.steps.gradient_bytes.iloc[0]
    return fit_step_time(timings.steps, timings.exchanges.assign(share=share))


def write_csv(rows: pd.DataFrame, path: Path) -> None:
    """Write rows to a CSV file that is either complete or absent."""
    with atomic_write(path) as temporary:
        rows.to_csv(temporary, index=False)
