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

from equipoise.config import TrainConfig
from equipoise.runs.record import Lap
from equipoise.storage.atomic import read_json, write_json
from equipoise.training.comm_benchmark import MESSAGE_BYTES, time_all_reduces, time_send_recv
from equipoise.training.gradient_sync import uses_all_to_all
from equipoise.training.loop import Training
from equipoise.workloads import load_workload
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import LeanTorchTrainer, build_trainer

TIMING_ROUNDS = 5  # through the ladder, each in an order of its own: a machine's pace drifts over seconds
MIN_STRETCH_SECONDS = 0.15  # timed in a round at each batch, after a lap that is not
MAX_LAP_SECONDS = 0.1  # of the longest laps: those of training if they are shorter, for what a step costs depends on it
EVALUATED_EXAMPLES = (
    256  # examples that are evaluated between laps, as training does: the caches are then as it leaves them
)
WARMUP_STEPS = 5
MAX_STRETCH_LAPS = 10_000  # in a stretch: more than fit


@dataclass(frozen=True, kw_only=True)
class StepTiming:
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
class ExchangeTiming:
    """One line of exchange.csv: all workers summed so many bytes, or one handed them to the next, and nothing else."""

    nodes: int
    workers: int
    kind: Literal["sum", "message"]
    bytes: int
    seconds: float


class TimingTables(NamedTuple):
    """What was timed: tables with the columns of `StepTiming` and of `ExchangeTiming`."""

    steps: pd.DataFrame
    exchanges: pd.DataFrame


def time_batch_ladders(
    base: TrainConfig, batches_by_workers: dict[int, list[int]], folder: Path, gpu: bool
) -> TimingTables:
    """Step times at every batch of each ladder that fits in memory; those that an earlier command left are read.

    Ladders are by number of workers.
    """
    found, exchanges = [], []
    for workers, batches in sorted(
        batches_by_workers.items(), reverse=True
    ):  # the nodes for the most workers are there now
        path = folder / f"workers-{workers}.json"
        rows, too_large, _ = load_timings(path)
        if not set(batches) <= {row.batch for row in rows} | set(too_large):
            wait_for_slots(workers, base.threads, gpu)  # what an earlier command timed took no node
            print(f"timing {len(batches)} batches on {workers} worker{'s' * (workers > 1)}", flush=True)
            write_json(path, fit_in_thread(build_timing_trainer(replace(base, workers=workers), batches, folder, gpu)))
        rows, too_large, alone = load_timings(path)
        exchanges += alone
        if left_out := sorted(set(batches) & set(too_large)):
            print(f"left out, for want of memory: {', '.join(map(str, left_out))} examples a worker", flush=True)
        found += [row for row in rows if row.batch in batches]
    if not found:
        raise ValueError("none of the batches fits in memory: choose smaller ones with --batch-size")
    return TimingTables(
        pd.DataFrame(found), pd.DataFrame(exchanges, columns=[field.name for field in fields(ExchangeTiming)])
    )


def load_timings(path: Path) -> tuple[list[StepTiming], list[int], list[ExchangeTiming]]:
    """What a file of an earlier command holds: rows, batches too large for memory, and exchanges."""
    if not path.exists():
        return [], [], []
    try:
        facts = read_json(path)
        rows = [StepTiming(**row) for row in facts["rows"]]
        if not all(isinstance(row.batch, int) and row.seconds > 0 for row in rows):
            raise ValueError("a row is none")
        return rows, [*facts["too_large"]], [ExchangeTiming(**one) for one in facts["exchanges"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: remove it, and the same command times its batches again") from error


def fit_in_thread(trainer: LeanTorchTrainer) -> Any:
    """What the workers return. Beside the main thread, where Ray would take Ctrl-C for itself."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(trainer.fit).result().return_value
    finally:
        pool.shutdown(wait=False)


def max_repeat_error(rows: pd.DataFrame) -> float | None:
    """How far two timings of the same setting differ at most: the clock's own error; None where none is asked for."""
    again = rows[rows["repeat"]].merge(rows[~rows["repeat"]], on=["nodes", "workers", "batch"])
    return float((again.seconds_x / again.seconds_y - 1).abs().max()) if len(again) else None


def build_timing_trainer(trial: TrainConfig, batches: list[int], folder: Path, gpu: bool) -> LeanTorchTrainer:
    """One group of workers that times all batches."""
    config = {"trial": asdict(trial), "batches": batches}
    return build_trainer(run_timing_worker, config, trial, folder / f"ray-{trial.workers}", gpu=gpu)


def run_timing_worker(config: dict[str, Any]) -> dict[str, Any]:
    """Time every batch that fits, one of them twice over."""
    trial = TrainConfig(**config["trial"])
    torch.set_num_threads(trial.threads)
    stand = StepBench(trial, config["batches"], get_device())
    fitting = [*stand.lap_steps_by_batch]
    nodes = stand.max_over_workers(ray.train.get_context().get_node_rank()) + 1
    rng = np.random.default_rng(trial.workers)  # all workers draw the same orders
    batches = [*fitting, *rng.choice(fitting, min(1, len(fitting))).tolist()]
    found: list[list[list[Lap]]] = [[] for _ in batches]
    for _ in range(TIMING_ROUNDS):
        for index in rng.permutation(len(batches)):
            found[index].append(stand.time_stretch(batches[index]))
    rows = [
        summarize_stretches(stand, nodes, batch, stretches) for batch, stretches in zip(batches, found, strict=True)
    ]
    rows[-1:] = [replace(again, repeat=True) for again in rows[-1:]]
    return {
        "rows": [asdict(one) for one in rows],
        "too_large": sorted(set(config["batches"]) - set(fitting)),
        "exchanges": [asdict(one) for one in stand.time_exchanges(nodes)],
    }


class StepBench:
    """Where one worker times steps at any batch."""

    def __init__(self, trial: TrainConfig, batches: list[int], device: torch.device) -> None:
        # nothing is learned, so that no rate makes the loss infinite
        self.trial = replace(trial, lr=0.0, target=float(np.finfo(np.float64).max))
        self.device = device
        made = load_workload(trial)
        self.workload = replace(
            made, validation=replace(made.validation, labels=made.validation.labels[:EVALUATED_EXAMPLES])
        )
        self.lap_steps_by_batch = {
            batch: self._choose_lap_steps(batch) for batch in batches if self._build_training(batch, 1).fits_in_memory()
        }

    @property
    def gradient_bytes(self) -> int:
        """Of the gradient."""
        return sum(parameter.nbytes for parameter in self._build_training(1, 1).trainable_parameters)

    def time_exchanges(self, nodes: int) -> list[ExchangeTiming]:
        """By themselves; none where gradients go around in one round, or nowhere."""
        workers = self.trial.workers
        if workers == 1 or uses_all_to_all(self.gradient_bytes, workers, self.device):
            return []
        message = ExchangeTiming(
            nodes=nodes, workers=workers, kind="message", bytes=MESSAGE_BYTES, seconds=time_send_recv(self.device)
        )
        sums = time_all_reduces(self.gradient_bytes, self.device)
        return [message, *(replace(message, kind="sum", bytes=size, seconds=took) for size, took in sums.items())]

    def max_over_workers(self, value: int) -> int:
        """The largest wish of any worker."""
        return self._build_training(1, 1).all_reduce_max(value)

    def time_stretch(self, batch: int) -> list[Lap]:
        """Laps at a batch, after one in which allocators and kernels settle."""
        training = self._build_training(batch, self.lap_steps_by_batch[batch])
        found: list[Lap] = []
        for lap in islice(training.laps(), 1, None):
            found.append(lap)
            if not training.all_reduce_max(int(sum(lap.seconds for lap in found) < MIN_STRETCH_SECONDS)):
                break
        return found

    def _choose_lap_steps(self, batch: int) -> int:
        """Steps of a lap, the same on all workers."""
        training = self._build_training(batch, WARMUP_STEPS)
        pace = list(islice(training.laps(), 2))[-1]
        longest = training.all_reduce_max(max(1, round(MAX_LAP_SECONDS / (pace.seconds / pace.steps))))
        return min(longest, math.ceil(self.workload.eval_interval(self.trial) / training.config.global_batch))

    def _build_training(self, batch: int, lap_steps: int) -> Training:
        each = lap_steps * batch * self.trial.workers
        asked = replace(self.trial, batch_size=batch, eval_every=each, max_examples=MAX_STRETCH_LAPS * each)
        return Training(asked, self.workload, self.device)


def summarize_stretches(bench: StepBench, nodes: int, batch: int, stretches: list[list[Lap]]) -> StepTiming:
    """The step of the median stretch."""

    def steps(name: str) -> list[float]:
        return [sum(getattr(lap, name) for lap in laps) / sum(lap.steps for lap in laps) for laps in stretches]

    return StepTiming(
        nodes=nodes,
        workers=bench.trial.workers,
        batch=batch,
        seconds=statistics.median(steps("seconds")),
        data_seconds=statistics.median(steps("data_seconds")),
        exchange_seconds=statistics.median(steps("exchange_seconds")),
        pace_sd=float(np.std(np.log(steps("seconds")), ddof=1)),
        gradient_bytes=bench.gradient_bytes,
    )
