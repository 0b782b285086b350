"""Step times of a sweep over workers and batch size.

One group of workers times all batch sizes on all of them, then on fewer: starting a group takes longer than timing.
"""

import time
from concurrent.futures import ThreadPoolExecutor
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
from equipoise.training.comm_benchmark import ALL_REDUCE_SECONDS
from equipoise.type_aliases import JsonObject
from equipoise.workloads import load_workload
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import LeanTorchTrainer, build_trainer
from jobs.ray_tune.process_groups import ShrinkingProcessGroup
from jobs.ray_tune.step_bench import StepBench, summarize_stretches
from jobs.ray_tune.timing_records import (
    GroupTimings,
    StepTiming,
    TimingTables,
    UntimedBatch,
    build_timing_tables,
    load_timings,
)
from jobs.ray_tune.timing_schedule import MAX_TIMING_ROUNDS, MIN_TIMING_ROUNDS, choose_batches

MAX_EXCHANGE_SHARE = 0.15  # of the time of a group of workers that its exchanges alone may take
MIN_BATCH_SIZES = 2  # they identify the fixed time of a step and that of each example


@dataclass(frozen=True, kw_only=True)
class TimingWorkerConfig:
    """Batch sizes to time on each number of workers, and in how many seconds."""

    trial: TrainConfig
    batches_by_workers: dict[int, list[int]]
    known_step_seconds: dict[int, dict[int, float]]
    """seconds of a step by number of workers and batch size, of those that an earlier command has timed"""
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
    earlier = {workers: load_timings(timings_path(folder, workers)) for workers in batches_by_workers}
    pending = find_pending(earlier, batches_by_workers, max_seconds)
    later = time_in_one_group(base, pending, earlier, folder, gpu, max_seconds) if pending else {}
    started_at = time.time() - sum(timings.elapsed_seconds for timings in later.values())
    groups = earlier | {workers: earlier[workers].merge(timings) for workers, timings in later.items()}
    for workers in later:
        write_json(timings_path(folder, workers), asdict(groups[workers]))
    for workers, batches in batches_by_workers.items():
        print_left_out(groups[workers], workers, batches)
    require_enough_batches(groups, batches_by_workers)
    if not any(group.rows for group in groups.values()):
        raise EquipoiseError("memory-exceeded", "no batch size fits in memory", "choose smaller ones with --batch-size")
    return build_timing_tables(groups, batches_by_workers, started_at)


def timings_path(folder: Path, workers: int) -> Path:
    """Return the file with the timings on a number of workers."""
    return folder / f"workers-{workers}.json"


def find_pending(
    earlier: dict[int, GroupTimings], batches_by_workers: dict[int, list[int]], max_seconds: float
) -> dict[int, list[int]]:
    """Return the batch sizes that are not timed yet, by number of workers, where there is time for one of them."""
    missing = {workers: earlier[workers].missing_batches(batches) for workers, batches in batches_by_workers.items()}
    return {
        workers: batches
        for workers, batches in missing.items()
        if batches and earlier[workers].least_seconds() <= max_seconds / len(batches_by_workers)
    }


def time_in_one_group(
    base: TrainConfig,
    pending: dict[int, list[int]],
    earlier: dict[int, GroupTimings],
    folder: Path,
    gpu: bool,
    max_seconds: float,
) -> dict[int, GroupTimings]:
    """Start one group of workers that times all batch sizes, on fewer and fewer of them."""
    most = max(pending)
    wait_for_slots(most, base.threads, gpu)
    limit = f", for at most {format_number(max_seconds)} s" if max_seconds < np.inf else ""
    counts = " and ".join(", ".join(map(str, sorted(pending))).rsplit(", ", 1))
    largest = max(pending.values(), key=len)
    print(f"timing {describe_batches(largest)} on {counts} worker{'s' * (most > 1)}{limit}", flush=True)
    config = TimingWorkerConfig(
        trial=replace(base, workers=most),
        batches_by_workers=pending,
        known_step_seconds={
            workers: {row.batch: row.seconds for row in earlier[workers].rows if not row.repeat} for workers in pending
        },
        max_seconds=max_seconds,
    )
    return fit_in_thread(build_timing_trainer(config, folder, gpu))


def print_left_out(timings: GroupTimings, workers: int, batches: list[int]) -> None:
    """Print the batch sizes that do not fit in memory or that there was no time for."""
    on_workers = f"on {pluralize(workers, 'worker')}"
    if skipped := sorted(set(batches) & set(timings.too_large)):
        print(f"skipped, too large for memory: {', '.join(map(str, skipped))} examples per worker", flush=True)
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


def has_enough_batches(timings: GroupTimings, batches: list[int]) -> bool:
    """Return whether two batch sizes were timed, or all for which it was not for lack of time."""
    timed = {row.batch for row in timings.rows} & set(batches)
    return not timings.untimed_batches(batches) or len(timed) >= min(MIN_BATCH_SIZES, len(batches))


def require_enough_batches(groups: dict[int, GroupTimings], batches_by_workers: dict[int, list[int]]) -> None:
    """Refuse to go on if the budget has no time for two batch sizes on a number of workers, and say which would do."""
    for workers, batches in sorted(batches_by_workers.items(), reverse=True):
        timings = groups[workers]
        if has_enough_batches(timings, batches):
            continue
        untimed = timings.untimed_batches(batches)
        missing = sorted(batch.timing_seconds for batch in untimed)[:MIN_BATCH_SIZES]
        budget = suggest_budget(timing_seconds=(timings.elapsed_seconds + sum(missing)) * len(batches_by_workers))
        raise EquipoiseError(
            "budget-too-small",
            f"a step of {untimed[0].batch} examples on each of {pluralize(workers, 'worker')} takes about"
            f" {format_number(untimed[0].step_seconds)} s, and there is no time for two batch sizes:"
            f" this sweep needs about {budget} s",
            f"give --budget-seconds {budget}, what was measured is kept, or choose a smaller --batch-size",
        )


def fit_in_thread(trainer: LeanTorchTrainer) -> dict[int, GroupTimings]:
    """Run the trainer and return its timings; in a thread, because in the main thread Ray would handle Ctrl-C."""
    pool = ThreadPoolExecutor(1)
    try:
        timings: dict[int, GroupTimings] = pool.submit(trainer.fit).result().return_value
        return timings
    finally:
        pool.shutdown(wait=False)


def build_timing_trainer(config: TimingWorkerConfig, folder: Path, gpu: bool) -> LeanTorchTrainer:
    """Build the trainer of the group of workers that times all batch sizes."""
    trial = config.trial
    return build_trainer(run_timing_worker, asdict(config), trial, folder / f"ray-{trial.workers}", gpu=gpu)


def run_timing_worker(loop_config: JsonObject) -> dict[int, GroupTimings]:
    """Time batch sizes on all workers, then on fewer; stop early if there is no time for two batch sizes."""
    config = TimingWorkerConfig.from_dict(loop_config)
    torch.set_num_threads(config.trial.threads)
    device = get_device()
    workload = load_workload(config.trial)
    started_at = time.monotonic()  # the data are part of the start, like the processes
    group = ShrinkingProcessGroup(device) if config.trial.workers > 1 else None
    timings: dict[int, GroupTimings] = {}
    for workers, batches in sorted(config.batches_by_workers.items(), reverse=True):
        if group and not group.shrink(workers):
            group.wait_for_end()
            break
        bench = StepBench(replace(config.trial, workers=workers), workload, device, started_at)
        groups_left = len(config.batches_by_workers) - len(timings)
        timings[workers] = time_worker_count(bench, config, batches, groups_left)
        if not has_enough_batches(timings[workers], batches):
            break
    if group and group.rank == 0:
        group.end()
    return timings


def time_worker_count(
    bench: StepBench, config: TimingWorkerConfig, batches: list[int], groups_left: int
) -> GroupTimings:
    """Time the batch sizes that fit in memory and in an equal part of the time left, and one of them twice."""
    start = bench.elapsed_seconds()
    max_seconds = max(0.0, config.max_seconds - start) / groups_left
    exchange_seconds = min(ALL_REDUCE_SECONDS, MAX_EXCHANGE_SHARE * max_seconds)
    step_deadline = start + max_seconds - (exchange_seconds if bench.trial.workers > 1 else 0.0)
    known = config.known_step_seconds[bench.trial.workers]
    schedule = choose_batches(batches, bench.probe, lambda: step_deadline - bench.elapsed_seconds(), known)
    nodes = bench.max_over_workers(ray.train.get_context().get_node_rank()) + 1
    return GroupTimings(
        rows=time_steps(bench, sorted(schedule.probes), nodes, step_deadline),
        too_large=sorted(schedule.too_large),
        untimed=[
            UntimedBatch(batch=batch, step_seconds=estimate.step_seconds, timing_seconds=estimate.timing_seconds)
            for batch, estimate in sorted(schedule.estimates.items())
        ],
        exchanges=bench.time_exchanges(nodes, exchange_seconds),
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
