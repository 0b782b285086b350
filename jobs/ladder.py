"""Times the whole ladder of batches in one group of workers: a group takes longer to start than to time a batch."""

import statistics
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import ray.train.torch
import torch

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


def worker(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Time every batch in a random order, the first one again at the end."""
    trial, nodes = Trial(**config["trial"]), config["nodes"]
    torch.set_num_threads(trial.threads)
    order = np.random.default_rng(trial.workers).permutation(config["batches"]).tolist()
    device = ray.train.torch.get_device()
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
