"""Measure drift detection on rows of a table: false alarms, and delay and cause of changes of columns.

python -m benchmarks.drift.tables [--streams 20] [--rows 50000]
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.hardware import describe_hardware
from tests.support.friedman_rows import (
    COLUMN_COUNT,
    WatchedRegressor,
    correlate_columns,
    draw_rows,
    drop_values,
    scale_column,
    shift_column,
)

RUN_LENGTH = 100_000.0  # rows per false alarm asked for
CLEAN_ROWS, CHANGED_ROWS = 640, 1920
TRAINING_ROWS, REFERENCE_ROWS, HELD_OUT_ROWS = 2000, 3000, 1000
PIECE_ROWS = 10_000  # rows answered at once

Change = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def main() -> None:
    """Measure and print false alarms and the delay of each change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20, help="number of clean streams")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of each clean stream")
    parser.add_argument("--repeats", type=int, default=20, help="streams of each change")
    parser.add_argument("--step", type=int, default=16, help="rows of each step")
    parser.add_argument("--seed", type=int, default=0, help="seed of the rows that the reference is drawn from")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_hardware(torch.device("cpu")))
    started = time.perf_counter()
    watched = WatchedRegressor.build(TRAINING_ROWS, REFERENCE_ROWS, HELD_OUT_ROWS, options.seed)
    print(f"profile of {len(watched.profile.schema)} statistics in {time.perf_counter() - started:.0f} s")
    print(f"held-out rows: {watched.profile.verified and watched.profile.verified.estimate}", flush=True)
    print("\n| change | named | median rows | 90 % | largest | false alarms before | last cause |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for name, cause, change in list_changes():
        print(measure_change(watched, name, cause, change, options.repeats, options.step), flush=True)
    alarms = [count_rows_to_alarm(watched, options.rows, 1000 + seed, options.step) for seed in range(options.streams)]
    alarmed = sum(alarm is not None for alarm in alarms)
    expected = options.streams * (1 - np.exp(-options.rows / RUN_LENGTH))
    print(f"\n{alarmed} of {options.streams} clean streams of {options.rows:,} rows alarmed; expected {expected:.1f}")
    print(f"first alarms: {alarms}")


def list_changes() -> list[tuple[str, str, Change]]:
    """Return each change with its name and the cause to be named."""
    shifts: list[tuple[str, str, Change]] = [
        (f"x{column + 1} by 0.5", f"column x{column + 1}", lambda rows, at=column: shift_column(rows, at, 0.5))
        for column in range(COLUMN_COUNT)
    ]
    pairs = ((0, 1, 0.9), (3, 4, 0.9), (5, 6, 0.9), (5, 6, 0.5), (0, 3, -0.7))
    joint: list[tuple[str, str, Change]] = [
        (
            f"x{a + 1} and x{b + 1} correlated, {rho}",
            "joint",
            lambda rows, a=a, b=b, rho=rho: correlate_columns(rows, a, b, rho),
        )
        for a, b, rho in pairs
    ]
    return [
        *shifts,
        *joint,
        ("x4 wider by 1.5", "scale of x4", lambda rows: scale_column(rows, 3, 1.5)),
        ("x7 narrower by 0.6", "scale of x7", lambda rows: scale_column(rows, 6, 0.6)),
        ("x8 missing in 20 %", "missing values of x8", lambda rows: drop_values(rows, 7, 0.2)),
        ("x4 missing in 20 %", "missing values of x4", lambda rows: drop_values(rows, 3, 0.2)),
    ]


def measure_change(watched: WatchedRegressor, name: str, cause: str, change: Change, repeats: int, step: int) -> str:
    """Return a row of the table: how often the right cause was named, and how many changed rows the alarm took."""
    delays: list[float] = []
    named, reason = 0, ""
    for seed in range(repeats):
        clean, changed = draw_rows(CLEAN_ROWS, 5000 + seed), change(draw_rows(CHANGED_ROWS, 6000 + seed))
        detector, delay = watched.watch(clean, changed, RUN_LENGTH, step)
        verdict = compute_stream_verdict(detector)
        delays.append(np.inf if delay is None else delay)
        named += verdict.cause == cause
        reason = verdict.why.split(";")[0]
    early = sum(delay <= 0 for delay in delays)
    delays = sorted(delay for delay in delays if delay > 0) or [np.nan]
    return (
        f"| {name} | {named} of {repeats} | {np.median(delays):.0f} | {np.quantile(delays, 0.9):.0f} | {delays[-1]:.0f}"
        f" | {early} | {reason} |"
    )


def count_rows_to_alarm(watched: WatchedRegressor, row_count: int, seed: int, step: int) -> int | None:
    """Return the number of clean rows until the first alarm; None without an alarm."""
    detector = StreamDetector.start(watched.profile, RUN_LENGTH)
    for start in range(0, row_count, PIECE_ROWS):
        rows = draw_rows(min(PIECE_ROWS, row_count - start), seed * 1000 + start // PIECE_ROWS)
        for sums in watched.sum_steps(rows, step):
            if detector.add_sums(sums, 0.0):
                return detector.observed_images
    return None


if __name__ == "__main__":
    main()
