"""Record an exhaustive sweep as ground truth: python -m benchmarks.search_policies.record_sweep NAME SWEEP [TIMED ...].

TIMED are sweeps of the same kind; where given, their step times are recorded instead of those of SWEEP.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.search_policies.ground_truth import DATA_FOLDER
from equipoise.config import TrainConfig
from equipoise.workloads import load_workload

EVALUATED_PASSES = [2.0**k for k in range(-2, 6)]


def main() -> None:
    """Copy both tables, and add the metrics after powers of two of passes over the data."""
    out, sweep, *timed = DATA_FOLDER / sys.argv[1], *map(Path, sys.argv[2:])
    out.mkdir(parents=True, exist_ok=True)
    ladders = [pd.read_csv(folder / "system.csv").assign(draw=draw) for draw, folder in enumerate(timed or [sweep])]
    columns = ["nodes", "workers", "batch", "seconds", "draw"]
    pd.concat(ladders)[columns].round(7).sort_values(["draw", *columns[:3]]).to_csv(out / "system.csv", index=False)
    pd.read_csv(sweep / "statistical.csv").round({"examples": 1}).to_csv(out / "statistical.csv", index=False)
    records = [json.loads(path.read_text()) for path in (sweep / "trials").glob("*.json")]
    pass_examples = len(load_workload(TrainConfig(**records[0]["config"])).train)
    rows = [build_metrics_row(record, pass_examples) for record in records]
    columns = ["global_batch", "lr", "seed"]
    metrics = pd.DataFrame(rows).set_index(columns).sort_index()
    metrics.round(4).to_csv(out / "metrics.csv")


def build_metrics_row(record: dict, pass_examples: int) -> dict:
    """Build the table row of a trial: its metric after each number of passes, the last one repeated after its end."""
    config = record["config"]
    known = [(lap["seen"], lap["metric"]) for lap in record["laps"] if lap["metric"] is not None] or [(1, 0.0)]
    seen, metrics = zip(*known, strict=True)
    marks = {
        str(round(pass_examples * passes)): float(np.interp(pass_examples * passes, seen, metrics))
        for passes in EVALUATED_PASSES
    }
    global_batch = config["workers"] * config["grad_accumulation"] * config["batch_size"]
    return {"global_batch": global_batch, "lr": config["lr"], "seed": config["seed"], **marks}


if __name__ == "__main__":
    main()
