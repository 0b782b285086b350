"""Step times of a sweep over workers and batch size.

One group of workers times all batch sizes, because starting a group takes longer than timing a batch size.
"""

import math
import statistics
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd
import ray.train
import torch
from msgspec import Meta
from ray.train.torch import get_device

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.hardware import describe_hardware
from equipoise.hardware_facts import HardwareFacts
from equipoise.number_bounds import MAX_COUNT, Count, NonNegativeNumber, PositiveNumber
from equipoise.runs.record import Lap
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.training.comm_benchmark import MESSAGE_BYTES, time_all_reduces, time_send_recv
from equipoise.training.gradient_sync import uses_all_to_all
from equipoise.training.loop import Training
from equipoise.type_aliases import JsonObject
from equipoise.workloads import load_workload
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import LeanTorchTrainer, build_trainer

TIMING_ROUNDS = 5  # over all batch sizes, each in another order, because a machine's pace drifts over seconds
MIN_STRETCH_SECONDS = 0.15  # timed per round and batch size, after a lap that is not timed
MAX_LAP_SECONDS = 0.1  # of the longest laps; in training they may be shorter, and the cost of a step depends on it
EVALUATED_EXAMPLES = 256  # evaluated between laps as in training, which leaves the caches in the same state
WARMUP_STEPS = 5
MAX_STRETCH_LAPS = 10_000  # more than fit in a stretch


@dataclass(frozen=True, kw_only=True)
class StepTiming:
    """Row of system.csv: the measured step time of one setting."""

    nodes: Count
    workers: Count
    batch: Count
    seconds: PositiveNumber
    """seconds per step: the mean over a stretch of laps, then the median of stretches"""
    data_seconds: NonNegativeNumber
    exchange_seconds: NonNegativeNumber
    pace_sd: NonNegativeNumber
    """standard deviation of log seconds between stretches"""
    gradient_bytes: Annotated[int, Meta(ge=0, le=MAX_COUNT)]
    """bytes of gradients that workers exchange in a step"""
    repeat: bool = False
    """whether it is a second timing of the same setting, which shows the error of the clock"""


@dataclass(frozen=True, kw_only=True)
class ExchangeTiming:
    """Row of exchange.csv: seconds of an all-reduce of so many bytes, or of a message, with nothing else running."""

    nodes: Count
    workers: Count
    kind: Literal["sum", "message"]
    bytes: Count
    seconds: PositiveNumber


@dataclass(frozen=True, kw_only=True)
class GroupTimings:
    """Timings of one group of workers, as the file workers-N.json keeps them."""

    rows: list[StepTiming]
    too_large: list[Count]
    """batch sizes per worker that do not fit in memory"""
    exchanges: list[ExchangeTiming]
    machine: HardwareFacts = HardwareFacts()  # noqa: RUF009 - immutable
    """hardware and software of the workers"""

    def includes(self, batches: list[int]) -> bool:
        """Return whether each of these batch sizes was timed or is too large."""
        return set(batches) <= {row.batch for row in self.rows} | set(self.too_large)


@dataclass(frozen=True, kw_only=True)
class TimingWorkerConfig:
    """Batch sizes that a group of workers has to time, and all other options."""

    trial: TrainConfig
    batches: list[int]

    @classmethod
    def from_dict(cls, loop_config: JsonObject) -> "TimingWorkerConfig":
        """Build the configuration from the dictionary that Ray Train passes on."""
        return cls(trial=TrainConfig(**loop_config["trial"]), batches=loop_config["batches"])


class TimingTables(NamedTuple):
    """Timings as tables with the columns of `StepTiming` and of `ExchangeTiming`."""

    steps: pd.DataFrame
    exchanges: pd.DataFrame
    machine: HardwareFacts


def time_batch_ladders(
    base: TrainConfig, batches_by_workers: dict[int, list[int]], folder: Path, gpu: bool
) -> TimingTables:
    """Time the steps of every batch size that fits in memory, for each number of workers.

    Timings of an earlier command are read from `folder`.
    """
    steps: list[StepTiming] = []
    exchanges: list[ExchangeTiming] = []
    for workers, batches in sorted(batches_by_workers.items(), reverse=True):  # nodes for the most workers are up now
        path = folder / f"workers-{workers}.json"
        if not load_timings(path).includes(batches):
            wait_for_slots(workers, base.threads, gpu)  # not needed for timings of an earlier command
            print(f"timing {len(batches)} batch sizes on {pluralize(workers, 'worker')}", flush=True)
            trainer = build_timing_trainer(replace(base, workers=workers), batches, folder, gpu)
            write_json(path, asdict(fit_in_thread(trainer)))
        timings = load_timings(path)
        exchanges += timings.exchanges
        if skipped := sorted(set(batches) & set(timings.too_large)):
            print(f"skipped, too large for memory: {', '.join(map(str, skipped))} examples per worker", flush=True)
        steps += [row for row in timings.rows if row.batch in batches]
    if not steps:
        raise EquipoiseError("memory-exceeded", "no batch size fits in memory", "choose smaller ones with --batch-size")
    return TimingTables(
        pd.DataFrame(steps),
        pd.DataFrame(exchanges, columns=[field.name for field in fields(ExchangeTiming)]),
        timings.machine,
    )


def load_timings(path: Path) -> GroupTimings:
    """Read the timings that an earlier command left in a file; none if there is no file."""
    if not path.exists():
        return GroupTimings(rows=[], too_large=[], exchanges=[])
    try:
        return decode_json_value(read_json(path), GroupTimings, code="file-damaged", problem="invalid timings")
    except EquipoiseError as error:
        raise EquipoiseError(
            "file-damaged", f"{path} is damaged: remove it, and the same command times its batches again"
        ) from error


def fit_in_thread(trainer: LeanTorchTrainer) -> GroupTimings:
    """Run the trainer and return its timings; in a thread, because in the main thread Ray would handle Ctrl-C."""
    pool = ThreadPoolExecutor(1)
    try:
        timings: GroupTimings = pool.submit(trainer.fit).result().return_value
        return timings
    finally:
        pool.shutdown(wait=False)


def max_repeat_error(rows: pd.DataFrame) -> float | None:
    """Return the largest relative difference of two timings of a setting; None if none was timed twice."""
    again = rows[rows["repeat"]].merge(rows[~rows["repeat"]], on=["nodes", "workers", "batch"])
    return float((again.seconds_x / again.seconds_y - 1).abs().max()) if len(again) else None


def build_timing_trainer(trial: TrainConfig, batches: list[int], folder: Path, gpu: bool) -> LeanTorchTrainer:
    """Build the trainer of one group of workers that times all batch sizes."""
    worker_config = TimingWorkerConfig(trial=trial, batches=batches)
    return build_trainer(run_timing_worker, asdict(worker_config), trial, folder / f"ray-{trial.workers}", gpu=gpu)


def run_timing_worker(loop_config: JsonObject) -> GroupTimings:
    """Time every batch size that fits in memory, and one of them twice."""
    worker_config = TimingWorkerConfig.from_dict(loop_config)
    trial = worker_config.trial
    torch.set_num_threads(trial.threads)
    bench = StepBench(trial, worker_config.batches, get_device())
    fitting = [*bench.lap_steps_by_batch]
    nodes = bench.max_over_workers(ray.train.get_context().get_node_rank()) + 1
    rng = np.random.default_rng(trial.workers)  # all workers draw the same orders
    batches = [*fitting, *rng.choice(fitting, min(1, len(fitting))).tolist()]
    stretches: list[list[list[Lap]]] = [[] for _ in batches]
    for _ in range(TIMING_ROUNDS):
        for index in rng.permutation(len(batches)):
            stretches[index].append(bench.time_stretch(batches[index]))
    rows = [summarize_stretches(bench, nodes, *timed) for timed in zip(batches, stretches, strict=True)]
    rows[-1:] = [replace(row, repeat=True) for row in rows[-1:]]
    return GroupTimings(
        rows=rows,
        too_large=sorted(set(worker_config.batches) - set(fitting)),
        exchanges=bench.time_exchanges(nodes),
        machine=describe_hardware(bench.device),
    )


class StepBench:
    """Timer of the steps of one worker at any batch size."""

    def __init__(self, trial: TrainConfig, batches: list[int], device: torch.device) -> None:
        # with a learning rate of 0 the loss stays finite
        self.trial = replace(trial, lr=0.0, target=float(np.finfo(np.float64).max))
        self.device = device
        workload = load_workload(trial)
        validation = replace(workload.validation, labels=workload.validation.labels[:EVALUATED_EXAMPLES])
        self.workload = replace(workload, validation=validation)
        self.lap_steps_by_batch = {
            batch: self._choose_lap_steps(batch) for batch in batches if self._build_training(batch, 1).fits_in_memory()
        }

    @property
    def gradient_bytes(self) -> int:
        """Size in bytes of the gradient of all trainable parameters."""
        return sum(parameter.nbytes for parameter in self._build_training(1, 1).trainable_parameters)

    def time_exchanges(self, nodes: int) -> list[ExchangeTiming]:
        """Time exchanges alone; return none for one worker or gradients so small that one all-to-all sums them."""
        workers = self.trial.workers
        if workers == 1 or uses_all_to_all(self.gradient_bytes, workers, self.device):
            return []
        message = ExchangeTiming(
            nodes=nodes, workers=workers, kind="message", bytes=MESSAGE_BYTES, seconds=time_send_recv(self.device)
        )
        sums = time_all_reduces(self.gradient_bytes, self.device)
        return [message, *(replace(message, kind="sum", bytes=size, seconds=seconds) for size, seconds in sums.items())]

    def max_over_workers(self, value: int) -> int:
        """Return the largest `value` of any worker."""
        return self._build_training(1, 1).all_reduce_max(value)

    def time_stretch(self, batch: int) -> list[Lap]:
        """Train a stretch of laps at a batch size, after a lap in which allocators and kernels warm up."""
        training = self._build_training(batch, self.lap_steps_by_batch[batch])
        laps: list[Lap] = []
        for lap in islice(training.laps(), 1, None):
            laps.append(lap)
            if not training.all_reduce_max(int(sum(lap.seconds for lap in laps) < MIN_STRETCH_SECONDS)):
                break
        return laps

    def _choose_lap_steps(self, batch: int) -> int:
        """Return the number of steps of a lap, the same on all workers."""
        training = self._build_training(batch, WARMUP_STEPS)
        lap = list(islice(training.laps(), 2))[-1]
        max_steps = training.all_reduce_max(max(1, round(MAX_LAP_SECONDS / (lap.seconds / lap.steps))))
        return min(max_steps, math.ceil(self.workload.eval_interval(self.trial) / training.config.global_batch))

    def _build_training(self, batch: int, lap_steps: int) -> Training:
        lap_examples = lap_steps * batch * self.trial.workers
        max_examples = MAX_STRETCH_LAPS * lap_examples
        trial = replace(self.trial, batch_size=batch, eval_every=lap_examples, max_examples=max_examples)
        return Training(trial, self.workload, self.device)


def summarize_stretches(bench: StepBench, nodes: int, batch: int, stretches: list[list[Lap]]) -> StepTiming:
    """Summarize the stretches of one batch size by their medians."""

    def seconds_per_step(name: str) -> list[float]:
        return [sum(getattr(lap, name) for lap in laps) / sum(lap.steps for lap in laps) for laps in stretches]

    return StepTiming(
        nodes=nodes,
        workers=bench.trial.workers,
        batch=batch,
        seconds=statistics.median(seconds_per_step("seconds")),
        data_seconds=statistics.median(seconds_per_step("data_seconds")),
        exchange_seconds=statistics.median(seconds_per_step("exchange_seconds")),
        pace_sd=float(np.std(np.log(seconds_per_step("seconds")), ddof=1)),
        gradient_bytes=bench.gradient_bytes,
    )
