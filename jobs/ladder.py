"""The system side of a sweep: step times over workers and batch.

One group of workers times the whole ladder of batches: a group takes longer to start than to time a batch.
"""

import statistics
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import ray.train
import torch
from ray.train.torch import TorchTrainer, get_device

from equipoise import store
from equipoise.loop import Training
from equipoise.record import Lap
from equipoise.trial import Trial

WARMUP_STEPS = 5
LAPS = 5  # timed, of each the seconds a step; their median counts
LAP_SECONDS = 0.1  # what a lap should take: long enough for the clock, short enough for many
FEWEST, MOST = 3, 100  # steps of a lap


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of system.csv."""

    nodes: int
    workers: int
    batch: int
    seconds: float
    """of a step, median over laps"""
    data_seconds: float
    exchange_seconds: float
    repeat: bool = False
    """timed once more at the end: how far the clock agrees with itself"""


def measured(base: Trial, ladders: dict[int, list[int]], place: Path, gpu: bool) -> pd.DataFrame:
    """Step times at every batch of the ladder of each number of workers; those that an earlier command left are read.

    Columns are those of `Row`.
    """
    found = []
    for workers, batches in ladders.items():
        path = place / f"workers-{workers}.json"
        rows = pd.DataFrame(store.read_json(path) if path.exists() else [], columns=[*Row.__annotations__])
        if not set(batches) <= set(rows.batch):
            print(f"timing {len(batches)} batches on {workers} worker{'s' * (workers > 1)}", flush=True)
            facts = timing(replace(base, workers=workers), batches, place, gpu).fit().return_value
            store.write_json(path, facts)
            rows = pd.DataFrame(facts)
        found.append(rows[rows.batch.isin(batches)])
    return pd.concat(found, ignore_index=True)


def apart(rows: pd.DataFrame) -> float:
    """How far two timings of the same setting differ at most: the clock's own error."""
    again = rows[rows["repeat"]].merge(rows[~rows["repeat"]], on=["nodes", "workers", "batch"])
    return float((again.seconds_x / again.seconds_y - 1).abs().max())


def timing(trial: Trial, batches: list[int], place: Path, gpu: bool) -> TorchTrainer:
    """One group of workers that times all batches."""
    return TorchTrainer(
        worker,
        train_loop_config={"trial": asdict(trial), "batches": batches},
        scaling_config=ray.train.ScalingConfig(
            num_workers=trial.workers,
            use_gpu=gpu,
            resources_per_worker={"CPU": trial.threads, **({"GPU": 1} if gpu else {})},
        ),
        run_config=ray.train.RunConfig(
            name=f"ray-{trial.workers}",
            storage_path=str(place),
            logging_config=ray.train.LoggingConfig(log_level="WARNING"),
        ),
    )


def worker(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Time every batch in a random order, the first one again at the end."""
    trial = Trial(**config["trial"])
    torch.set_num_threads(trial.threads)
    order = np.random.default_rng(trial.workers).permutation(config["batches"]).tolist()
    device = get_device()
    nodes = Training(trial, device=device).agree(ray.train.get_context().get_node_rank()) + 1
    timed(replace(trial, batch=order[0]), device, nodes)  # what starts cold is not timed
    rows = [timed(replace(trial, batch=batch), device, nodes) for batch in [*order, order[0]]]
    rows[-1] = replace(rows[-1], repeat=True)
    return [asdict(row) for row in rows]


def timed(trial: Trial, device: torch.device, nodes: int) -> Row:
    """A step at the trial's batch: first steps are dropped, where allocators and kernels settle."""
    pace = laps(trial, device, WARMUP_STEPS, 2)[-1]
    steps = min(MOST, max(FEWEST, round(LAP_SECONDS / (pace.seconds / pace.steps))))
    if trial.workers > 1:  # all workers take the same laps
        wish = torch.tensor(steps, device=device)
        torch.distributed.broadcast(wish, 0)
        steps = int(wish)
    found = laps(trial, device, steps, LAPS + 1)[1:]

    def median(name: str) -> float:
        return float(statistics.median(getattr(lap, name) / lap.steps for lap in found))

    return Row(
        nodes=nodes,
        workers=trial.workers,
        batch=trial.batch,
        seconds=median("seconds"),
        data_seconds=median("data_seconds"),
        exchange_seconds=median("exchange_seconds"),
    )


def laps(trial: Trial, device: torch.device, steps: int, count: int) -> list[Lap]:
    """So many laps of so many steps, without a look at the noise scale."""
    each = steps * trial.global_batch
    asked = replace(trial, evaluate=each, examples=each * count, target=float(np.finfo(np.float64).max), probe=0)
    return list(islice(Training(asked, device=device).laps(), count))
