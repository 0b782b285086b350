"""Record an exhaustive sweep as ground truth: python -m benchmarks.search_policies.record_sweep NAME SWEEP [TIMED ...].

TIMED are sweeps of the same kind whose step times are taken instead.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.search_policies.ground_truth import DATA
from equipoise.config import TrainConfig
from equipoise.workloads import load_workload

PASSES = [2.0**k for k in range(-2, 6)]


def main() -> None:
    """Copy both tables, and add the metric after powers of two of passes."""
    place, sweep, *more = DATA / sys.argv[1], *map(Path, sys.argv[2:])
    place.mkdir(parents=True, exist_ok=True)
    ladders = [pd.read_csv(folder / "system.csv").assign(draw=draw) for draw, folder in enumerate(more or [sweep])]
    columns = ["nodes", "workers", "batch", "seconds", "draw"]
    pd.concat(ladders)[columns].round(7).sort_values(["draw", *columns[:3]]).to_csv(place / "system.csv", index=False)
    pd.read_csv(sweep / "statistical.csv").round({"examples": 1}).to_csv(place / "statistical.csv", index=False)
    records = [json.loads(path.read_text()) for path in (sweep / "trials").glob("*.json")]
    each = len(load_workload(TrainConfig(**records[0]["config"])).train)
    rows = [row(record, each) for record in records]
    columns = ["global_batch", "lr", "seed"]
    found = pd.DataFrame(rows).set_index(columns).sort_index()
    found.round(4).to_csv(place / "metrics.csv")


def row(record: dict, each: int) -> dict:
    """A trial's metric by examples seen, a pass being `each`; after its end it stays as it was."""
    trial = record["config"]
    known = [(lap["seen"], lap["metric"]) for lap in record["laps"] if lap["metric"] is not None] or [(1, 0.0)]
    seen, metrics = zip(*known, strict=True)
    marks = {str(round(each * passes)): float(np.interp(each * passes, seen, metrics)) for passes in PASSES}
    whole = trial["workers"] * trial["grad_accumulation"] * trial["batch_size"]
    return {"global_batch": whole, "lr": trial["lr"], "seed": trial["seed"], **marks}


if __name__ == "__main__":
    main()
