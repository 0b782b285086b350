"""Step times of a sweep over workers and batch size.

One group of workers times all batch sizes on all of them, then on fewer: starting a group takes longer than timing.
The first worker writes the timings on each number of workers as soon as they are complete, and a later command reads
them.
"""

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import ray.train
import torch
from ray.train.torch import get_device

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number, pluralize
from equipoise.hardware import describe_hardware
from equipoise.planning.sweep_budget import suggest_budget
from equipoise.runs.record import Lap
from equipoise.storage.atomic import write_json
from equipoise.storage.object_store import parse_location
from equipoise.training.comm_benchmark import ALL_REDUCE_SECONDS
from equipoise.type_aliases import JsonObject
from equipoise.workloads import load_workload
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import LeanTorchTrainer, build_trainer, fit_in_thread
from jobs.timing.process_groups import ShrinkingProcessGroup
from jobs.timing.step_bench import StepBench, summarize_stretches
from jobs.timing.timing_records import (
    StepTiming,
    TimingTables,
    UntimedBatch,
    WorkerCountTimings,
    build_timing_tables,
    load_timings,
)
from jobs.timing.timing_schedule import MAX_TIMING_ROUNDS, MIN_TIMING_ROUNDS, choose_batches

MAX_EXCHANGE_SHARE = 0.15  # of the time of a group of workers that its exchanges alone may take
MIN_BATCH_SIZES = 2  # they identify the fixed time of a step and that of each example


@dataclass(frozen=True, kw_only=True)
class TimingWorkerConfig:
    """Batch sizes to time on each number of workers, except for those already timed, and in how many seconds."""

    trial: TrainConfig
    batches_by_workers: dict[int, list[int]]
    folder: str
    """folder or URL of the timings, with those of earlier commands"""
    max_seconds: float

    @classmethod
    def from_dict(cls, loop_config: JsonObject) -> "TimingWorkerConfig":
        """Build the configuration from the dictionary that Ray Train passes on."""
        return cls(**loop_config | {"trial": TrainConfig(**loop_config["trial"])})


def time_batch_ladders(
    base: TrainConfig, batches_by_workers: dict[int, list[int]], folder: Path, gpu: bool, max_seconds: float
) -> TimingTables:
    """Time the steps of the batch sizes that fit in memory and in `max_seconds`, for each number of workers.

    Timings of an earlier command are read from `folder`.
    """
    earlier = load_all_timings(folder, batches_by_workers)
    started_at = time.time()
    if pending := find_pending(earlier, batches_by_workers, max_seconds):
        requested = {workers: batches_by_workers[workers] for workers in pending}
        print_start(pending, max_seconds)
        started_at = time_in_one_group(base, requested, folder, gpu, max_seconds)
    timings = load_all_timings(folder, batches_by_workers)
    for workers, batches in batches_by_workers.items():
        print_left_out(timings[workers], workers, batches)
    require_enough_batches(timings, batches_by_workers, max_seconds)
    tables = build_timing_tables(timings, batches_by_workers, started_at)
    if tables.steps.empty:
        raise EquipoiseError("memory-exceeded", "no batch size fits in memory", "choose smaller ones with --batch-size")
    return tables


def load_all_timings(folder: Path, batches_by_workers: dict[int, list[int]]) -> dict[int, WorkerCountTimings]:
    """Read the timings on each number of workers, as far as there are any."""
    return {workers: load_timings(timings_path(folder, workers)) for workers in batches_by_workers}


def timings_path(folder: Path, workers: int) -> Path:
    """Return the file with the timings on a number of workers."""
    return folder / f"workers-{workers}.json"


def find_pending(
    earlier: dict[int, WorkerCountTimings], batches_by_workers: dict[int, list[int]], max_seconds: float
) -> dict[int, list[int]]:
    """Return the batch sizes that are not timed yet, by number of workers, where there is time for one of them."""
    missing = {workers: earlier[workers].missing_batches(batches) for workers, batches in batches_by_workers.items()}
    return {
        workers: batches
        for workers, batches in missing.items()
        if batches and earlier[workers].least_seconds() <= max_seconds / len(batches_by_workers)
    }


def time_in_one_group(
    base: TrainConfig, batches_by_workers: dict[int, list[int]], folder: Path, gpu: bool, max_seconds: float
) -> float:
    """Start one group of workers that times all batch sizes, on fewer and fewer of them.

    Return the Unix time at which it began.
    """
    max_workers = max(batches_by_workers)
    wait_for_slots(max_workers, base.threads, gpu)
    config = TimingWorkerConfig(
        trial=replace(base, workers=max_workers),
        batches_by_workers=batches_by_workers,
        folder=str(folder),
        max_seconds=max_seconds,
    )
    started_at: float = fit_in_thread(build_timing_trainer(config, folder, gpu))
    return started_at


def print_start(pending: dict[int, list[int]], max_seconds: float) -> None:
    """Print which batch sizes are about to be timed, on how many workers, and for how long."""
    limit = f", for at most {format_number(max_seconds)} s" if max_seconds < np.inf else ""
    counts = " and ".join(", ".join(map(str, sorted(pending))).rsplit(", ", 1))
    batches = sorted({batch for batches in pending.values() for batch in batches})
    print(f"timing {describe_batches(batches)} on {counts} worker{'s' * (max(pending) > 1)}{limit}", flush=True)


def print_left_out(timings: WorkerCountTimings, workers: int, batches: list[int]) -> None:
    """Print the batch sizes that do not fit in memory or that there was no time for."""
    on_workers = f"on {pluralize(workers, 'worker')}"
    if skipped := sorted(set(batches) & set(timings.too_large)):
        sizes = ", ".join(map(str, skipped))
        print(f"skipped {on_workers}, too large for memory: {sizes} examples per worker", flush=True)
    if untimed := timings.untimed_batches(batches):
        print(f"left out {on_workers} for lack of time: {describe_untimed(untimed)}", flush=True)


def describe_batches(batches: list[int]) -> str:
    """Return the range of batch sizes in words."""
    if len(batches) == 1:
        return f"a batch size of {batches[0]}"
    return f"{len(batches)} batch sizes from {min(batches)} to {max(batches)}"


def describe_untimed(untimed_batches: list[UntimedBatch]) -> str:
    """Return which batch sizes the budget left no time for, and how long the largest takes."""
    sizes = ", ".join(str(untimed.batch) for untimed in untimed_batches)
    largest = untimed_batches[-1]
    seconds = format_number(largest.step_seconds)
    return f"{sizes} examples per worker; a step of {largest.batch} takes about {seconds} s"


def has_enough_batches(timings: WorkerCountTimings, batches: list[int]) -> bool:
    """Return whether two batch sizes were timed, or all that fit in memory."""
    timed = {row.batch for row in timings.rows} & set(batches)
    return not timings.missing_batches(batches) or len(timed) >= min(MIN_BATCH_SIZES, len(batches))


def require_enough_batches(
    timings_by_workers: dict[int, WorkerCountTimings], batches_by_workers: dict[int, list[int]], max_seconds: float
) -> None:
    """Refuse to go on if the budget has no time for two batch sizes on a number of workers, and say which would do.

    Timing stops at the first such number of workers, from the largest on.
    """
    for workers, batches in sorted(batches_by_workers.items(), reverse=True):
        timings = timings_by_workers[workers]
        if has_enough_batches(timings, batches):
            continue
        untimed = timings.untimed_batches(batches)
        missing = sorted(batch.timing_seconds for batch in untimed)[:MIN_BATCH_SIZES]
        needed = (timings.elapsed_seconds + sum(missing)) * len(batches_by_workers)
        budget = suggest_budget(timing_seconds=needed, given_timing_seconds=max_seconds)
        raise EquipoiseError(
            "budget-too-small",
            f"a step of {untimed[0].batch} examples per worker on {pluralize(workers, 'worker')} takes about"
            f" {format_number(untimed[0].step_seconds)} s, and there is no time for two batch sizes:"
            f" this sweep needs about {budget} s",
            f"give --budget-seconds {budget}, what was measured is kept, or choose a smaller --batch-size",
        )


def build_timing_trainer(config: TimingWorkerConfig, folder: Path, gpu: bool) -> LeanTorchTrainer:
    """Build the trainer of the group of workers that times all batch sizes."""
    trial = config.trial
    return build_trainer(run_timing_worker, asdict(config), trial, folder / f"ray-{trial.workers}", gpu=gpu)


def run_timing_worker(loop_config: JsonObject) -> float:
    """Time batch sizes on all workers, then on fewer, and return the Unix time at which this began.

    Stop early if there is no time for two batch sizes.
    """
    config = TimingWorkerConfig.from_dict(loop_config)
    torch.set_num_threads(config.trial.threads)
    device = get_device()
    workload = load_workload(config.trial)
    group = ShrinkingProcessGroup(device) if config.trial.workers > 1 else None  # all workers have their data now
    began_at, start = time.time(), time.monotonic()
    num_left = len(config.batches_by_workers)
    for workers, batches in sorted(config.batches_by_workers.items(), reverse=True):
        if group and not group.shrink(workers):
            group.wait_for_end()
            break
        bench = StepBench(replace(config.trial, workers=workers), workload, device, start)
        path = timings_path(parse_location(config.folder), workers)
        earlier = load_timings(path)
        missing = earlier.missing_batches(batches)
        timings = earlier.merge(time_worker_count(bench, config.max_seconds, missing, num_left, earlier))
        if group is None or group.rank == 0:
            write_json(path, asdict(timings))
        num_left -= 1
        if not has_enough_batches(timings, batches):
            break
    if group and group.rank == 0:
        group.end()
    return began_at


def time_worker_count(
    bench: StepBench, max_seconds: float, batches: list[int], num_left: int, earlier: WorkerCountTimings
) -> WorkerCountTimings:
    """Time the batch sizes that fit in memory and in an equal part of the time left, and one of them twice.

    `num_left` is how many numbers of workers share the time left, `earlier` what an earlier command has timed.
    """
    start = bench.elapsed_seconds()
    part_seconds = max(0.0, max_seconds - start) / num_left
    exchange_seconds = min(ALL_REDUCE_SECONDS, MAX_EXCHANGE_SHARE * part_seconds)
    if bench.trial.workers == 1 or earlier.exchanges:
        exchange_seconds = 0.0
    step_deadline = start + part_seconds - exchange_seconds
    known = {row.batch: row.seconds for row in earlier.rows if not row.repeat}
    schedule = choose_batches(batches, bench.probe, lambda: step_deadline - bench.elapsed_seconds(), known)
    nodes = bench.max_over_workers(ray.train.get_context().get_node_rank()) + 1
    return WorkerCountTimings(
        rows=time_steps(bench, sorted(schedule.probes), nodes, step_deadline),
        too_large=sorted(schedule.too_large),
        untimed=[
            UntimedBatch(batch=batch, step_seconds=estimate.step_seconds, timing_seconds=estimate.timing_seconds)
            for batch, estimate in sorted(schedule.unaffordable.items())
        ],
        exchanges=bench.time_exchanges(nodes, exchange_seconds) if exchange_seconds else [],
        machine=describe_hardware(bench.device),
        elapsed_seconds=bench.elapsed_seconds() - start,
    )


def time_steps(bench: StepBench, batches: list[int], nodes: int, deadline: float) -> list[StepTiming]:
    """Time batch sizes in several rounds, as many as end before the deadline; one of them is timed twice."""
    rng = np.random.default_rng(bench.trial.workers)  # all workers draw the same orders
    smaller_half = batches[: -(-len(batches) // 2)]  # their second timing costs less
    batches = [*batches, *rng.choice(smaller_half, min(1, len(batches))).tolist()]
    stretches: list[list[list[Lap]]] = [[] for _ in batches]
    round_seconds = 0.0
    for index in range(MAX_TIMING_ROUNDS):
        started_at = bench.elapsed_seconds()
        if index >= MIN_TIMING_ROUNDS and started_at + round_seconds > deadline:
            break
        for position in rng.permutation(len(batches)):
            stretches[position].append(bench.time_stretch(batches[position]))
        round_seconds = bench.elapsed_seconds() - started_at
    rows = [summarize_stretches(bench, nodes, *timed) for timed in zip(batches, stretches, strict=True)]
    rows[-1:] = [replace(row, repeat=True) for row in rows[-1:]]
    return rows
