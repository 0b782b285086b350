"""Measure Evidently and NannyML beside our detector on the same rows: false alarms, delays and columns named.

python -m benchmarks.drift.table_peers [--window 500] [--repeats 10]

They judge windows, ours steps of 16 rows. Windows are cut at another place in each stream of a change, so that the
change begins anywhere in a window. A window before the change is left out, one that holds some changed rows counts.
"""

import argparse
import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.drift.peer_detectors import PEER_PYTHON
from benchmarks.drift.tables import (
    CHANGED_ROWS,
    CLEAN_ROWS,
    HELD_OUT_ROWS,
    PIECE_ROWS,
    REFERENCE_ROWS,
    RUN_LENGTH,
    TRAINING_ROWS,
    Change,
    list_changes,
)
from equipoise.drift.detector import StreamDetector
from equipoise.drift.diagnosis.stream_verdict import compute_stream_verdict
from equipoise.hardware import describe_hardware
from tests.support.friedman_rows import COLUMN_COUNT, WatchedRegressor, answer_rows, draw_rows, draw_targets
from tests.support.ray_cluster import ROOT

GROUPS = {
    "column": "by half a sd",
    "joint": "two correlated, 0.9",
    "weak": "two correlated, 0.5 or -0.7",
    "scale": "wider or narrower",
}
FEW_CHANGES, FEW_REPEATS = ("x4 by 0.5", "x9 by 0.5", "x6 and x7 correlated, 0.9"), 2
"""changes and streams of each that slow detectors judge"""
OFFSET_ROWS = 25  # by which the first window of a stream begins later than that of the stream before it


@dataclass(frozen=True, eq=False)
class ChangedStream:
    """Stream of rows that changes."""

    change: str
    group: str
    cause: str
    clean: NDArray[np.float64]
    changed: NDArray[np.float64]
    repeat: int

    def cut_windows(self, size: int) -> tuple[list[NDArray[np.float64]], list[int]]:
        """Return the windows that hold changed rows, and how many changed rows have come by the end of each."""
        rows, windows, ends = np.concatenate([self.clean, self.changed]), [], []
        for start in range(OFFSET_ROWS * self.repeat % size, len(rows) - size + 1, size):
            if start + size > len(self.clean):
                windows.append(rows[start : start + size])
                ends.append(start + size - len(self.clean))
        return windows, ends


@dataclass(frozen=True)
class Finding:
    """First alarm after a change, and whether the changed column was named."""

    group: str
    delay: float
    """changed rows until the alarm; infinite without one"""
    is_named: bool


def main() -> None:
    """Measure and print a row for each detector."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=20, help="number of clean streams")
    parser.add_argument("--rows", type=int, default=50_000, help="rows of each clean stream")
    parser.add_argument("--repeats", type=int, default=10, help="streams of each change")
    parser.add_argument("--window", type=int, default=500, help="rows of each window of the others")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(describe_hardware(torch.device("cpu")))
    watched = WatchedRegressor.build(TRAINING_ROWS, REFERENCE_ROWS, HELD_OUT_ROWS)
    streams = list(draw_changed_streams(options.repeats))
    print(f"| detector | false alarms in 100,000 rows | {' | '.join(GROUPS.values())} |")
    print("|---|--:|" + "--:|" * len(GROUPS))
    print(measure_ours(watched, streams, options.streams, options.rows), flush=True)
    if not PEER_PYTHON.exists():
        raise SystemExit("cannot run Evidently and NannyML: they are not installed; run make .venv/watchers/ready")
    results = run_peers(watched, streams, options)
    for name, result in results.items():
        print(format_peer_row(name, result, streams, options.window), flush=True)


def draw_changed_streams(repeats: int) -> Iterator[ChangedStream]:
    """Draw the streams of each change that all detectors can be asked for: those without missing values."""
    for name, cause, change in list_changes():
        if not cause.startswith("missing"):
            yield from draw_streams_of_change(name, cause, change, repeats)


def draw_streams_of_change(name: str, cause: str, change: Change, repeats: int) -> Iterator[ChangedStream]:
    """Draw the streams of one change, with the seeds that benchmarks.drift.tables takes."""
    group = cause.split()[0]
    group = "weak" if group == "joint" and not name.endswith(" 0.9") else group
    for repeat in range(repeats):
        clean, changed = draw_rows(CLEAN_ROWS, 5000 + repeat), change(draw_rows(CHANGED_ROWS, 6000 + repeat))
        yield ChangedStream(name, group, cause, clean, changed, repeat)


def draw_clean_pieces(row_count: int, stream: int) -> Iterator[NDArray[np.float64]]:
    """Draw the rows of a clean stream in pieces, with the seeds that benchmarks.drift.tables takes."""
    for start in range(0, row_count, PIECE_ROWS):
        yield draw_rows(min(PIECE_ROWS, row_count - start), (1000 + stream) * 1000 + start // PIECE_ROWS)


def measure_ours(watched: WatchedRegressor, streams: Sequence[ChangedStream], stream_count: int, row_count: int) -> str:
    """Return the row of our detector; it starts anew after each alarm of a clean stream."""
    alarms, findings = 0, []
    for index in range(stream_count):
        detector = StreamDetector.start(watched.profile, RUN_LENGTH)
        for rows in draw_clean_pieces(row_count, index):
            for sums in watched.sum_steps(rows, 16):
                if detector.add_sums(sums, 0.0):
                    detector, alarms = StreamDetector.start(watched.profile, RUN_LENGTH), alarms + 1
    for stream in streams:
        detector, delay = watched.watch(stream.clean, stream.changed, RUN_LENGTH)
        is_early = delay is not None and delay <= 0  # a false alarm before the change: neither found nor missed
        if not is_early:
            is_named = compute_stream_verdict(detector).cause == stream.cause
            findings.append(Finding(stream.group, np.inf if delay is None else delay, is_named))
    rate = alarms / (stream_count * row_count) * 1e5
    return format_row("ours, one false alarm in 100,000 rows asked", rate, findings)


def run_peers(watched: WatchedRegressor, streams: Sequence[ChangedStream], options: Any) -> dict[str, Any]:
    """Run the others on windows of the same streams, and return what each said of each window."""
    clean = [
        add_answers(watched, rows).reshape(-1, options.window, COLUMN_COUNT + 1)
        for index in range(options.streams)
        for rows in draw_clean_pieces(options.rows, index)
    ]
    windows = [window for stream in streams for window in stream.cut_windows(options.window)[0]]
    is_few = [
        stream.change in FEW_CHANGES and stream.repeat < FEW_REPEATS
        for stream in streams
        for _ in stream.cut_windows(options.window)[0]
    ]
    arrays = {
        "columns": np.array([*(f"x{index + 1}" for index in range(COLUMN_COUNT)), "answer"]),
        "reference": draw_reference(watched),
        "clean": np.concatenate(clean),
        "changed": np.stack([add_answers(watched, window) for window in windows]),
        "is_few": np.array(is_few),
    }
    with TemporaryDirectory() as name:
        np.savez(Path(name) / "given.npz", **arrays)
        command = [str(PEER_PYTHON), str(ROOT / "benchmarks/drift/run_table_peers.py"), name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # LightGBM writes there
        results: dict[str, Any] = json.loads((Path(name) / "found.json").read_text())
    return results


def draw_reference(watched: WatchedRegressor) -> NDArray[np.float64]:
    """Return the rows of our reference and the held-out ones, with answers and true numbers."""
    rows = draw_rows(TRAINING_ROWS + REFERENCE_ROWS + HELD_OUT_ROWS, 0)
    answered = add_answers(watched, rows)
    return np.concatenate([answered, draw_targets(rows, 0)[:, None]], 1)[TRAINING_ROWS:]


def add_answers(watched: WatchedRegressor, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows with the answers of the regressor as a further column."""
    return np.concatenate([rows, answer_rows(watched.model, rows).answers[:, None]], 1)


def format_peer_row(name: str, result: dict[str, Any], streams: Sequence[ChangedStream], window: int) -> str:
    """Return the row of another detector, from the column that it named in each window."""
    if "why not" in result:
        return f"| {name} | {result['why not']} |" + " |" * len(GROUPS)
    findings, first = [], 0
    for stream in streams:
        ends = stream.cut_windows(window)[1]
        named = result["changed"][first : first + len(ends)]
        first += len(ends)
        if None in named:
            continue
        alarm = next((index for index, column in enumerate(named) if column), None)
        is_named = alarm is not None and named[alarm] == stream.cause.split()[-1]
        findings.append(Finding(stream.group, np.inf if alarm is None else ends[alarm], is_named))
    rate = sum(map(bool, result["clean"])) / (len(result["clean"]) * window) * 1e5
    return format_row(name, rate, findings)


def format_row(name: str, alarm_rate: float, findings: Sequence[Finding]) -> str:
    """Return a row: false alarms, and of each group of changes the share found, the median delay and the share named.

    The delay is that of the streams that were found.
    """
    cells = [describe_group([finding for finding in findings if finding.group == group]) for group in GROUPS]
    return f"| {name} | {alarm_rate:.3g} | {' | '.join(cells)} |"


def describe_group(findings: Sequence[Finding]) -> str:
    """Return the share found, the median delay and the share named right of the findings of a group."""
    if not findings:
        return "not tried"
    delays = [finding.delay for finding in findings if np.isfinite(finding.delay)]
    if not delays:
        return f"0 of {len(findings)}"
    named = sum(finding.is_named for finding in findings)
    return f"{len(delays)} of {len(findings)}, {np.median(delays):.0f} rows, {named} named"


if __name__ == "__main__":
    main()
