"""The system side of a sweep: step times over workers and batch.

One group of workers times the whole ladder of batches: a group takes longer to start than to time a batch.
"""

import math
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import ray.train
import torch
from ray.train.torch import get_device

from equipoise.config import Trial
from equipoise.runs.record import Lap
from equipoise.storage import atomic as store
from equipoise.training import comm_benchmark as wire
from equipoise.training.gradient_sync import one_round
from equipoise.training.loop import Training
from equipoise.workloads import workload
from jobs.cluster import wait as room
from jobs.ray_train.trainer import Trainer, build_trainer

ROUNDS = 5  # through the ladder, each in an order of its own: a machine's pace drifts over seconds
STRETCH_SECONDS = 0.15  # timed in a round at each batch, after a lap that is not
LAP_SECONDS = 0.1  # of the longest laps: those of training if they are shorter, for what a step costs depends on it
FEW = 256  # examples that are evaluated between laps, as training does: the caches are then as it leaves them
WARMUP_STEPS = 5
MOST_LAPS = 10_000  # in a stretch: more than fit


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of system.csv."""

    nodes: int
    workers: int
    batch: int
    seconds: float
    """of a step: the mean of a stretch of laps, the median of stretches"""
    data_seconds: float
    exchange_seconds: float
    pace_sd: float
    """of log seconds from stretch to stretch"""
    gradient_bytes: int
    """that are exchanged"""
    repeat: bool = False
    """timed once more at the end: how far the clock agrees with itself"""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One line of exchange.csv: all workers summed so many bytes, or one handed them to the next, and nothing else."""

    nodes: int
    workers: int
    kind: Literal["sum", "message"]
    bytes: int
    seconds: float


class Timed(NamedTuple):
    """What was timed: tables with the columns of `Row` and of `Exchange`."""

    rows: pd.DataFrame
    exchanges: pd.DataFrame


def measured(base: Trial, ladders: dict[int, list[int]], place: Path, gpu: bool) -> Timed:
    """Step times at every batch of each ladder that fits in memory; those that an earlier command left are read.

    Ladders are by number of workers.
    """
    found, exchanges = [], []
    for workers, batches in sorted(ladders.items(), reverse=True):  # the nodes for the most workers are there now
        path = place / f"workers-{workers}.json"
        rows, too_large, _ = kept(path)
        if not set(batches) <= {row.batch for row in rows} | set(too_large):
            room.wait_for(workers, base.threads, gpu)  # what an earlier command timed took no node
            print(f"timing {len(batches)} batches on {workers} worker{'s' * (workers > 1)}", flush=True)
            store.write_json(path, returned(timing(replace(base, workers=workers), batches, place, gpu)))
        rows, too_large, alone = kept(path)
        exchanges += alone
        if left_out := sorted(set(batches) & set(too_large)):
            print(f"left out, for want of memory: {', '.join(map(str, left_out))} examples a worker", flush=True)
        found += [row for row in rows if row.batch in batches]
    if not found:
        raise ValueError("none of the batches fits in memory: choose smaller ones with --batch")
    return Timed(pd.DataFrame(found), pd.DataFrame(exchanges, columns=[field.name for field in fields(Exchange)]))


def kept(path: Path) -> tuple[list[Row], list[int], list[Exchange]]:
    """What a file of an earlier command holds: rows, batches too large for memory, and exchanges."""
    if not path.exists():
        return [], [], []
    try:
        facts = store.read_json(path)
        rows = [Row(**row) for row in facts["rows"]]
        if not all(isinstance(row.batch, int) and row.seconds > 0 for row in rows):
            raise ValueError("a row is none")
        return rows, [*facts["too_large"]], [Exchange(**one) for one in facts["exchanges"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: remove it, and the same command times its batches again") from error


def returned(trainer: Trainer) -> Any:
    """What the workers return. Beside the main thread, where Ray would take Ctrl-C for itself."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(trainer.fit).result().return_value
    finally:
        pool.shutdown(wait=False)


def apart(rows: pd.DataFrame) -> float | None:
    """How far two timings of the same setting differ at most: the clock's own error; None where none is asked for."""
    again = rows[rows["repeat"]].merge(rows[~rows["repeat"]], on=["nodes", "workers", "batch"])
    return float((again.seconds_x / again.seconds_y - 1).abs().max()) if len(again) else None


def timing(trial: Trial, batches: list[int], place: Path, gpu: bool) -> Trainer:
    """One group of workers that times all batches."""
    config = {"trial": asdict(trial), "batches": batches}
    return build_trainer(worker, config, trial, place / f"ray-{trial.workers}", gpu=gpu)


def worker(config: dict[str, Any]) -> dict[str, Any]:
    """Time every batch that fits, one of them twice over."""
    trial = Trial(**config["trial"])
    torch.set_num_threads(trial.threads)
    stand = Stand(trial, config["batches"], get_device())
    fitting = [*stand.lap_steps]
    nodes = stand.agree(ray.train.get_context().get_node_rank()) + 1
    rng = np.random.default_rng(trial.workers)  # all workers draw the same orders
    batches = [*fitting, *rng.choice(fitting, min(1, len(fitting))).tolist()]
    found: list[list[list[Lap]]] = [[] for _ in batches]
    for _ in range(ROUNDS):
        for index in rng.permutation(len(batches)):
            found[index].append(stand.stretch(batches[index]))
    rows = [row(stand, nodes, batch, stretches) for batch, stretches in zip(batches, found, strict=True)]
    rows[-1:] = [replace(again, repeat=True) for again in rows[-1:]]
    return {
        "rows": [asdict(one) for one in rows],
        "too_large": sorted(set(config["batches"]) - set(fitting)),
        "exchanges": [asdict(one) for one in stand.exchanges(nodes)],
    }


class Stand:
    """Where one worker times steps at any batch."""

    def __init__(self, trial: Trial, batches: list[int], device: torch.device) -> None:
        # nothing is learned, so that no rate makes the loss infinite
        self.trial = replace(trial, lr=0.0, target=float(np.finfo(np.float64).max))
        self.device = device
        made = workload(trial)
        self.made = replace(made, validation=replace(made.validation, labels=made.validation.labels[:FEW]))
        self.lap_steps = {batch: self._lap_steps(batch) for batch in batches if self._training(batch, 1).fits()}

    @property
    def bytes(self) -> int:
        """Of the gradient."""
        return sum(parameter.nbytes for parameter in self._training(1, 1).trained)

    def exchanges(self, nodes: int) -> list[Exchange]:
        """By themselves; none where gradients go around in one round, or nowhere."""
        workers = self.trial.workers
        if workers == 1 or one_round(self.bytes, workers, self.device):
            return []
        message = Exchange(
            nodes=nodes, workers=workers, kind="message", bytes=wire.MESSAGE_BYTES, seconds=wire.message(self.device)
        )
        sums = wire.sums(self.bytes, self.device)
        return [message, *(replace(message, kind="sum", bytes=size, seconds=took) for size, took in sums.items())]

    def agree(self, wish: int) -> int:
        """The largest wish of any worker."""
        return self._training(1, 1).agree(wish)

    def stretch(self, batch: int) -> list[Lap]:
        """Laps at a batch, after one in which allocators and kernels settle."""
        training = self._training(batch, self.lap_steps[batch])
        found: list[Lap] = []
        for lap in islice(training.laps(), 1, None):
            found.append(lap)
            if not training.agree(int(sum(lap.seconds for lap in found) < STRETCH_SECONDS)):
                break
        return found

    def _lap_steps(self, batch: int) -> int:
        """Steps of a lap, the same on all workers."""
        training = self._training(batch, WARMUP_STEPS)
        pace = list(islice(training.laps(), 2))[-1]
        longest = training.agree(max(1, round(LAP_SECONDS / (pace.seconds / pace.steps))))
        return min(longest, math.ceil(self.made.every(self.trial) / training.trial.global_batch))

    def _training(self, batch: int, lap_steps: int) -> Training:
        each = lap_steps * batch * self.trial.workers
        asked = replace(self.trial, batch=batch, evaluate=each, examples=MOST_LAPS * each)
        return Training(asked, self.made, self.device)


def row(stand: Stand, nodes: int, batch: int, stretches: list[list[Lap]]) -> Row:
    """The step of the median stretch."""

    def steps(name: str) -> list[float]:
        return [sum(getattr(lap, name) for lap in laps) / sum(lap.steps for lap in laps) for laps in stretches]

    return Row(
        nodes=nodes,
        workers=stand.trial.workers,
        batch=batch,
        seconds=statistics.median(steps("seconds")),
        data_seconds=statistics.median(steps("data_seconds")),
        exchange_seconds=statistics.median(steps("exchange_seconds")),
        pace_sd=float(np.std(np.log(steps("seconds")), ddof=1)),
        gradient_bytes=stand.bytes,
    )
