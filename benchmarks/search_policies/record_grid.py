"""Record trials for a whole grid, each with its metric at the same geometric marks of examples.

python -m benchmarks.search_policies.record_grid WORKLOAD --out FOLDER --target T --cap N --cells BATCH:LR ...

A trial is what a sweep would train on one worker; it ends at the target or at the cap. It is written as it ends, and
one that is there already is not repeated unless it ended before this target and cap.
"""

import argparse
import json
import math
from itertools import count
from pathlib import Path

import torch

from equipoise.config import TrainConfig
from equipoise.runs.record import mean_noise_scale
from equipoise.training.loop import Training
from equipoise.workloads import Workload, load_workload

FIRST_MARK = 1024  # examples
MARK_RATIO = 1.15  # between marks: interpolated crossings are then right to 0.3 % on a smooth curve
FIRST_EVALUATED_INDEX = 6  # of the marks
COARSE_STRIDE = 2  # in marks, as long as the training loss is not near the next target
NEAR_MARGIN = 0.1  # of the training loss above a target
TARGETS = (2.4, 2.2, 2.0)


def main() -> None:
    """Record the trials that are missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_policies.record_grid", description=__doc__)
    parser.add_argument("workload")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", type=float, required=True)
    parser.add_argument("--cap", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--cells", nargs="+", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    workload = load_workload(TrainConfig(workload=options.workload))
    for seed in options.seeds:
        for batch, lr in (cell.split(":") for cell in options.cells):
            config = TrainConfig(
                workload=options.workload,
                batch_size=int(batch),
                lr=float(lr),
                seed=seed,
                target=options.target,
                max_examples=options.cap,
            )
            path = options.out / f"batch-{batch}-lr-{config.lr:g}-seed-{seed}.json"
            if not is_recorded(path, options.target, options.cap):
                path.write_text(json.dumps(record_trial(config, workload)))
                print(path.stem, json.loads(path.read_text())["metrics"][-1], flush=True)


def is_recorded(path: Path, target: float, cap: int) -> bool:
    """Return whether a trial has been recorded at least up to this target or cap, where a lower metric is better."""
    if not path.exists():
        return False
    trial = json.loads(path.read_text())
    return bool(trial["target"] <= target or trial["seen"][-1] >= cap)


def record_trial(config: TrainConfig, workload: Workload) -> dict[str, object]:
    """Train to the target or the cap, and return the metrics at the marks and the noise scale."""
    training = Training(config, workload)
    training.eval_every = next_mark(0, is_near=False)
    for lap in training.laps():
        best = min((lap.metric for lap in training.finished_laps if lap.metric is not None), default=math.inf)
        target = max((target for target in TARGETS if target < best), default=0.0)
        training.eval_every = next_mark(lap.seen, is_near=(lap.loss or 0.0) < target + NEAR_MARGIN)
    evaluated = [(lap.seen, lap.metric) for lap in training.finished_laps if lap.metric is not None]
    return {
        "batch": config.global_batch,
        "lr": config.lr,
        "seed": config.seed,
        "target": config.target,
        "status": training.status,
        "seconds": sum(lap.seconds for lap in training.finished_laps),
        "noise_scale": mean_noise_scale(training.finished_laps),
        "seen": [seen for seen, _ in evaluated],
        "metrics": [metric for _, metric in evaluated],
    }


def next_mark(seen: int, *, is_near: bool) -> int:
    """Return the next number of examples to evaluate at; as it was not seen yet, the next lap ends there."""
    stride = 1 if is_near else COARSE_STRIDE
    indices = count(0 if is_near else FIRST_EVALUATED_INDEX, stride)
    return next(mark for index in indices if (mark := round(FIRST_MARK * MARK_RATIO**index)) > seen)


if __name__ == "__main__":
    main()
