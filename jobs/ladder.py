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
from equipoise.workloads import workload

WARMUP_STEPS = 5
ROUNDS = 3  # through the ladder, each in an order of its own: a machine's pace drifts over seconds
LAPS = 2  # timed in a round, after one that is not; the median over all rounds counts
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


def apart(rows: pd.DataFrame) -> float | None:
    """How far two timings of the same setting differ at most: the clock's own error; None where none is asked for."""
    again = rows[rows["repeat"]].merge(rows[~rows["repeat"]], on=["nodes", "workers", "batch"])
    return float((again.seconds_x / again.seconds_y - 1).abs().max()) if len(again) else None


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
    """Time every batch, one of them twice over."""
    trial = Trial(**config["trial"])
    torch.set_num_threads(trial.threads)
    stand = Stand(trial, config["batches"], get_device())
    nodes = stand.agree(ray.train.get_context().get_node_rank()) + 1
    rng = np.random.default_rng(trial.workers)  # all workers draw the same orders
    batches = [*config["batches"], rng.choice(config["batches"]).item()]
    found: list[list[Lap]] = [[] for _ in batches]
    for _ in range(ROUNDS):
        for index in rng.permutation(len(batches)):
            found[index] += stand.timed(batches[index])
    rows = [row(trial.workers, nodes, batch, laps) for batch, laps in zip(batches, found, strict=True)]
    return [asdict(one) for one in [*rows[:-1], replace(rows[-1], repeat=True)]]


class Stand:
    """Where one worker times steps at any batch."""

    def __init__(self, trial: Trial, batches: list[int], device: torch.device) -> None:
        # nothing is learned, so that no rate makes the loss infinite
        self.trial = replace(trial, lr=0.0, probe=0, target=float(np.finfo(np.float64).max))
        self.device = device
        self.made = workload(trial)
        self.steps = {batch: self._steps(batch) for batch in batches}

    def agree(self, wish: int) -> int:
        """The largest wish of any worker."""
        return Training(self.trial, self.made, self.device).agree(wish)

    def timed(self, batch: int) -> list[Lap]:
        """Laps at a batch, after one in which allocators and kernels settle."""
        return self._laps(batch, self.steps[batch], LAPS + 1)[1:]

    def _steps(self, batch: int) -> int:
        """Steps that make a lap of a good length, the same on all workers."""
        pace = self._laps(batch, WARMUP_STEPS, 2)[-1]
        return self.agree(min(MOST, max(FEWEST, round(LAP_SECONDS / (pace.seconds / pace.steps)))))

    def _laps(self, batch: int, steps: int, count: int) -> list[Lap]:
        each = steps * batch * self.trial.workers
        asked = replace(self.trial, batch=batch, evaluate=each, examples=each * count)
        return list(islice(Training(asked, self.made, self.device).laps(), count))


def row(workers: int, nodes: int, batch: int, laps: list[Lap]) -> Row:
    """The median step of some laps."""

    def median(name: str) -> float:
        return float(statistics.median(getattr(lap, name) / lap.steps for lap in laps))

    return Row(
        nodes=nodes,
        workers=workers,
        batch=batch,
        seconds=median("seconds"),
        data_seconds=median("data_seconds"),
        exchange_seconds=median("exchange_seconds"),
    )
