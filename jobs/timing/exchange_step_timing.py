"""Step times with other ways of exchange, each in turns with exact sums at the same setting, on all workers of it.

A machine's pace drifts over minutes, and the step times of a sweep were taken before its trials: what counts is the
ratio of two laps that follow each other.
"""

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import ray
import ray.train
import torch
from ray.train.torch import get_device

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.number_bounds import Count, NonNegativeNumber, PositiveNumber
from equipoise.planning.exchanges.training_options import replace_exchange
from equipoise.registries.exchange_registry import parse_compression
from equipoise.runs.record import Lap
from equipoise.storage.atomic import read_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.training.dataloader import PARAMETER_DTYPES
from equipoise.type_aliases import JsonObject
from equipoise.workloads import load_workload
from jobs.cluster.resources import worker_resources
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import build_trainer, fit_in_thread
from jobs.timing.process_groups import ShrinkingProcessGroup
from jobs.timing.step_bench import StepBench

EXCHANGE_TIMINGS_FILE = "exchanges.json"  # in the folder of the timings of a sweep
MIN_TURNS, MAX_TURNS = 2, 9  # of a lap with exact sums and one with the other way of exchange
LAP_SECONDS = 0.3  # of a lap, unless it takes longer from one exchange to the next


@dataclass(frozen=True, kw_only=True)
class ExchangeStepTiming:
    """Measured steps with a way of exchange at one setting, beside steps with exact sums in turns with them."""

    exchange: str
    """way of exchange"""
    nodes: Count
    """nodes that the workers were on"""
    workers: Count
    """workers on all nodes"""
    batch: Count
    """examples per worker and step"""
    seconds: PositiveNumber
    """median seconds of a step, averaged from one exchange to the next"""
    exact_seconds: PositiveNumber
    """median seconds of a step with exact sums"""
    ratio: PositiveNumber
    """median of the seconds over those of exact sums, of laps that follow each other"""
    pace_sd: NonNegativeNumber
    """standard deviation of the log of that ratio between laps"""
    data_seconds: NonNegativeNumber
    """seconds of a step waiting for batches"""
    exchange_seconds: NonNegativeNumber
    """seconds of a step waiting for the exchange"""
    sent_bytes: NonNegativeNumber
    """bytes that leave the worker that sends most, in an average step"""
    encode_seconds: NonNegativeNumber
    """seconds of encoding and decoding in an average step"""
    peak_bytes: Count | None = None
    """most bytes in the tensors of a worker; None where they were not measured"""


@dataclass(frozen=True, kw_only=True)
class ExchangeTimings:
    """What a sweep has measured of other ways of exchange, as its file keeps it."""

    encode_seconds: dict[str, NonNegativeNumber] = field(default_factory=dict)
    """seconds in which one worker encodes and decodes all gradients once, by compression"""
    steps: list[ExchangeStepTiming] = field(default_factory=list)
    """measured steps"""

    def find_steps(self, exchange: str, workers: int, batch: int) -> ExchangeStepTiming | None:
        """Return the timing of a setting, or None."""
        setting = (exchange, workers, batch)
        return next((row for row in self.steps if (row.exchange, row.workers, row.batch) == setting), None)


class MeasuredSteps(NamedTuple):
    """Steps that a group of workers has timed, and how long that took without its start."""

    steps: list[ExchangeStepTiming]
    seconds: float


class MeasuredEncodings(NamedTuple):
    """Seconds of encoding by compression, and how long measuring took without the start of a process."""

    encode_seconds: dict[str, float]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TimedExchange:
    """Way of exchange to time, and the setting."""

    exchange: str
    workers: int
    batch: int


@dataclass(frozen=True, kw_only=True)
class ExchangeWorkerConfig:
    """What a group of workers has to time, and for how long."""

    trial: TrainConfig
    exchanges: list[TimedExchange]
    seconds: float
    """seconds for each of them"""

    @classmethod
    def from_dict(cls, loop_config: JsonObject) -> "ExchangeWorkerConfig":
        """Build the configuration from the dictionary that Ray Train passes on."""
        exchanges = [TimedExchange(**values) for values in loop_config["exchanges"]]
        return cls(**loop_config | {"trial": TrainConfig(**loop_config["trial"]), "exchanges": exchanges})


def load_exchange_timings(folder: Path) -> ExchangeTimings:
    """Read what an earlier command of a sweep has measured of other ways of exchange; nothing if there is no file."""
    path = folder / EXCHANGE_TIMINGS_FILE
    if not path.exists():
        return ExchangeTimings()
    try:
        return decode_json_value(read_json(path), ExchangeTimings, code="file-damaged", problem="invalid timings")
    except EquipoiseError as error:
        raise EquipoiseError(
            "file-damaged", f"{path} is damaged: remove it, and the same command times these exchanges again"
        ) from error


def time_encodings(
    base: TrainConfig, shapes: Sequence[tuple[int, ...]], compressions: Sequence[str], gpu: bool
) -> MeasuredEncodings:
    """Time on one worker of the cluster how long it encodes and decodes gradients of these shapes once."""
    wait_for_slots(1, base.threads, gpu)
    resources = worker_resources(base.threads, gpu)
    measure = ray.remote(num_cpus=resources["CPU"], num_gpus=resources.get("GPU", 0), max_retries=0)(measure_encodings)
    dtype = PARAMETER_DTYPES[base.precision]
    measured: MeasuredEncodings = ray.get(measure.remote([*shapes], dtype, [*compressions], base.threads, gpu))
    return measured


def measure_encodings(
    shapes: list[tuple[int, ...]], dtype: torch.dtype, compressions: list[str], threads: int, gpu: bool
) -> MeasuredEncodings:
    """Time in this process how long it encodes and decodes gradients once, by compression."""
    from equipoise.compression.encode_timing import time_encoding

    start = time.monotonic()
    torch.set_num_threads(threads)
    device = torch.device("cuda" if gpu else "cpu")
    gradients = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
    seconds = {name: time_encoding(gradients, parse_compression(name)) for name in compressions}
    return MeasuredEncodings(seconds, time.monotonic() - start)


def time_exchange_steps(
    base: TrainConfig, exchanges: Sequence[TimedExchange], folder: Path, gpu: bool, seconds: float
) -> MeasuredSteps:
    """Start one group of workers that times steps with ways of exchange, `seconds` for each of them."""
    most_workers = max(timed.workers for timed in exchanges)
    wait_for_slots(most_workers, base.threads, gpu)
    config = ExchangeWorkerConfig(trial=replace(base, workers=most_workers), exchanges=[*exchanges], seconds=seconds)
    trainer = build_trainer(
        run_exchange_worker, asdict(config), config.trial, folder / f"ray-exchanges-{most_workers}", gpu=gpu
    )
    trainer.work = "timing exchanges"
    measured: MeasuredSteps = fit_in_thread(trainer)
    return measured


def run_exchange_worker(loop_config: JsonObject) -> MeasuredSteps:
    """Time steps in a worker of Ray Train, with all workers and then with fewer, and return what they took."""
    config = ExchangeWorkerConfig.from_dict(loop_config)
    torch.set_num_threads(config.trial.threads)
    device = get_device()
    workload = load_workload(config.trial)
    group = ShrinkingProcessGroup(device)
    start = time.monotonic()
    steps: list[ExchangeStepTiming] = []
    for workers in sorted({timed.workers for timed in config.exchanges}, reverse=True):
        if not group.shrink(workers):
            group.wait_for_end()
            break
        trial = replace(config.trial, workers=workers)
        for timed in (timed for timed in config.exchanges if timed.workers == workers):
            exact, other = (
                StepBench(options, workload, device, 0.0)
                for options in (trial, replace_exchange(trial, timed.exchange))
            )
            steps += time_in_turns(exact, other, timed, config.seconds)
    if group.rank == 0:
        group.end()
    return MeasuredSteps(steps, time.monotonic() - start)


def time_in_turns(exact: StepBench, other: StepBench, timed: TimedExchange, seconds: float) -> list[ExchangeStepTiming]:
    """Time steps with exact sums and another way of exchange in turns; return none if they do not fit in memory."""
    nodes = exact.max_over_workers(ray.train.get_context().get_node_rank()) + 1
    probe = exact.probe(timed.batch)
    if probe is None:
        return []
    other.probes[timed.batch] = probe  # a probe of its own would take as long as several turns
    generators = [bench.start_laps(timed.batch, LAP_SECONDS) for bench in (exact, other)]
    if None in generators:
        return []
    start = exact.elapsed_seconds()
    turns: list[tuple[Lap, Lap]] = []
    while len(turns) < MIN_TURNS or (len(turns) < MAX_TURNS and exact.elapsed_seconds() - start < seconds):
        exact_lap, own_lap = (next(laps) for laps in generators if laps is not None)
        turns.append((exact_lap, own_lap))
    return [replace(summarize_turns(turns, timed, nodes), peak_bytes=other.measured_peaks.get(timed.batch))]


def summarize_turns(turns: Sequence[tuple[Lap, Lap]], timed: TimedExchange, nodes: int) -> ExchangeStepTiming:
    """Summarize laps with exact sums, each followed by one with another way of exchange, by their medians."""
    exact, own = zip(*turns, strict=True)
    ratios = [lap.seconds / lap.steps / (other.seconds / other.steps) for other, lap in turns]

    def median_per_step(laps: Sequence[Lap], name: str) -> float:
        return statistics.median((getattr(lap, name) or 0.0) / lap.steps for lap in laps)

    return ExchangeStepTiming(
        exchange=timed.exchange,
        nodes=nodes,
        workers=timed.workers,
        batch=timed.batch,
        seconds=median_per_step(own, "seconds"),
        exact_seconds=median_per_step(exact, "seconds"),
        ratio=statistics.median(ratios),
        pace_sd=float(np.std(np.log(ratios), ddof=1)),
        data_seconds=median_per_step(own, "data_seconds"),
        exchange_seconds=median_per_step(own, "exchange_seconds"),
        sent_bytes=float(own[-1].sent_bytes or 0),
        encode_seconds=median_per_step(own, "encode_seconds"),
    )
