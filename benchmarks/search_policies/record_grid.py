"""Record trials for a whole grid, each with its metric at the same geometric marks of examples.

python -m benchmarks.search_policies.record_grid WORKLOAD --out FOLDER --target T --cap N --cells BATCH:LR ...

A trial is what a sweep would train on one worker; it ends at the target or at the cap. It is written as it ends, and
one that is there already is not repeated unless it ended before this target and cap.
"""

import argparse
import json
from pathlib import Path

import torch

from equipoise.config import TrainConfig
from equipoise.runs.record import mean_noise_scale
from equipoise.training.loop import Training
from equipoise.workloads import Workload, load_workload

FIRST_MARK = 1024  # examples
MARK_RATIO = 1.15  # between marks: interpolated crossings are then right to 0.3 % on a smooth curve


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
    mark = float(FIRST_MARK)
    training.eval_every = round(mark)
    for lap in training.laps():
        if lap.metric is not None:
            while round(mark) <= lap.seen:
                mark *= MARK_RATIO
            training.eval_every = round(mark)  # more than was seen, so that this is where the metric is known next
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


if __name__ == "__main__":
    main()
