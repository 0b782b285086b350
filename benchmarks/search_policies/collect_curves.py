"""Collect recorded trials and step times as the tables of tests/data.

python -m benchmarks.search_policies.collect_curves NAME TRIALS SWEEP [SWEEP ...]

TRIALS is the folder of `record_grid`; the sweeps, of the same workload on the same machine, give the step times.
"""

import json
import sys
from pathlib import Path

import pandas as pd

from benchmarks.search_policies.record_grid import FIRST_MARK, MARK_RATIO
from benchmarks.search_policies.recorded_curves import DATA_FOLDER, FIRST_COLUMNS, round_up

STEP_COLUMNS = ["nodes", "workers", "batch", "seconds", "draw"]


def main() -> None:
    """Write curves.csv, and system.csv if there are sweeps."""
    out, trials, *sweeps = DATA_FOLDER / sys.argv[1], *map(Path, sys.argv[2:])
    out.mkdir(parents=True, exist_ok=True)
    records = [json.loads(path.read_text()) for path in trials.glob("*.json")]
    last = max(record["seen"][-1] for record in records)
    marks = [round(FIRST_MARK * MARK_RATIO**index) for index in range(100)]
    marks = [mark for mark in marks if mark <= last]
    table = pd.DataFrame([build_row(record, marks) for record in records]).sort_values(FIRST_COLUMNS[:3])
    table.to_csv(out / "curves.csv", index=False)
    if sweeps:
        ladders = [pd.read_csv(folder / "system.csv").assign(draw=draw) for draw, folder in enumerate(sweeps)]
        steps = pd.concat(ladders)[STEP_COLUMNS].sort_values(["draw", *STEP_COLUMNS[:3]])
        steps.round(7).to_csv(out / "system.csv", index=False)


def build_row(record: dict, marks: list[int]) -> dict[str, object]:
    """Build the row of a trial; the evaluation at its cap is left out, as it is at no mark."""
    metrics = dict(zip(record["seen"], record["metrics"], strict=True))
    first = [*(record[name] for name in ("batch", "lr", "seed", "target")), round(record["noise_scale"] or 0.0, 1)]
    values = {str(mark): metrics.pop(round_up(mark, record["batch"]), None) for mark in marks}
    return dict(zip(FIRST_COLUMNS, first, strict=True)) | {
        mark: metric if metric is None else round(metric, 4) for mark, metric in values.items()
    }


if __name__ == "__main__":
    main()
