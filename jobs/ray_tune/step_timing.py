"""Step times of a sweep over workers and batch size.

One group of workers times all batch sizes, because starting a group takes longer than timing a batch size.
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
from jobs.cluster.wait import wait_for_slots
from jobs.ray_train.trainer import LeanTorchTrainer, build_trainer
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
    """Batch sizes that a group of workers has to time, and in how many seconds."""

    trial: TrainConfig
    batches: list[int]
    max_seconds: float
    """seconds for this group and `later_groups`, which take as long to start as this one"""
    later_groups: int
    launched_at: float
    """Unix time"""
    known_step_seconds: list[tuple[int, float]]
    """batch sizes that an earlier command has timed, each with the seconds of a step"""

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
    groups: dict[int, GroupTimings] = {}
    clock = TimingClock(max_seconds)
    for workers, batches in sorted(batches_by_workers.items(), reverse=True):  # nodes for the most workers are up now
        later_groups = len(batches_by_workers) - len(groups) - 1
        groups[workers] = time_group(replace(base, workers=workers), batches, folder, gpu, clock, later_groups)
        require_enough_batches(groups[workers], workers, batches, clock, len(batches_by_workers))
    if not any(group.rows for group in groups.values()):
        raise EquipoiseError("memory-exceeded", "no batch size fits in memory", "choose smaller ones with --batch-size")
    return build_timing_tables(groups, batches_by_workers, clock.started_at or time.time())


@dataclass
class TimingClock:
    """Clock of a sweep's budget: it starts with the first measurement, and then the start of workers counts too."""

    max_seconds: float
    started_at: float = 0.0
    """Unix time at which the first group of workers was ready; 0 before"""
    group_start_seconds: float = 0.0
    """seconds that the last group of workers took to start"""

    def seconds_left(self) -> float:
        """Return the seconds left for timing."""
        return self.max_seconds - (time.time() - self.started_at if self.started_at else 0.0)

    def record_group(self, launched_at: float, elapsed_seconds: float) -> None:
        """Record that a group of workers has ended, which measured for so long."""
        ready_at = time.time() - elapsed_seconds
        self.group_start_seconds = max(0.0, ready_at - launched_at)
        self.started_at = self.started_at or ready_at


def time_group(
    trial: TrainConfig, batches: list[int], folder: Path, gpu: bool, clock: TimingClock, later_groups: int
) -> GroupTimings:
    """Time the batch sizes of one group of workers that no earlier command has timed, and write all to a file."""
    path = folder / f"workers-{trial.workers}.json"
    timings = replace(load_timings(path), elapsed_seconds=0.0)
    missing = timings.missing_batches(batches)
    seconds = clock.seconds_left() - clock.group_start_seconds
    fewest_seconds = min((untimed.timing_seconds for untimed in timings.untimed), default=0.0)
    if missing and fewest_seconds <= seconds / (1 + later_groups):
        wait_for_slots(trial.workers, trial.threads, gpu)  # not needed for timings of an earlier command
        limit = f", {format_number(max(0.0, seconds))} s left for timing" if seconds < np.inf else ""
        print(f"timing {describe_batches(missing)} on {pluralize(trial.workers, 'worker')}{limit}", flush=True)
        launched_at = time.time()
        config = TimingWorkerConfig(
            trial=trial,
            batches=missing,
            max_seconds=seconds,
            later_groups=later_groups,
            launched_at=launched_at,
            known_step_seconds=[(row.batch, row.seconds) for row in timings.rows if not row.repeat],
        )
        timings = timings.merge(fit_in_thread(build_timing_trainer(config, folder, gpu)))
        clock.record_group(launched_at, timings.elapsed_seconds)
        write_json(path, asdict(timings))
    if skipped := sorted(set(batches) & set(timings.too_large)):
        print(f"skipped, too large for memory: {', '.join(map(str, skipped))} examples per worker", flush=True)
    if untimed := [untimed for untimed in timings.untimed if untimed.batch in timings.missing_batches(batches)]:
        print(describe_untimed(untimed), flush=True)
    return timings


def describe_batches(batches: list[int]) -> str:
    """Return the range of batch sizes in words."""
    if len(batches) == 1:
        return f"a batch size of {batches[0]}"
    return f"{len(batches)} batch sizes from {min(batches)} to {max(batches)}"


def describe_untimed(untimed_batches: list[UntimedBatch]) -> str:
    """Return which batch sizes the budget left no time for, and why."""
    sizes = ", ".join(str(untimed.batch) for untimed in untimed_batches)
    largest = untimed_batches[-1]
    return (
        f"left out for lack of time: {sizes} examples per worker; a step of {largest.batch} takes about"
        f" {format_number(largest.step_seconds)} s"
    )


def require_enough_batches(
    timings: GroupTimings, workers: int, batches: list[int], clock: TimingClock, num_groups: int
) -> None:
    """Refuse to go on if the budget has no time for two batch sizes on a number of workers, and say which would do."""
    timed = {row.batch for row in timings.rows} & set(batches)
    untimed = [untimed for untimed in timings.untimed if untimed.batch in batches]
    if not untimed or len(timed) >= min(MIN_BATCH_SIZES, len(batches)):
        return
    needed = sum(sorted(batch.timing_seconds for batch in untimed)[: MIN_BATCH_SIZES - len(timed)])
    group_seconds = timings.elapsed_seconds + needed
    budget = suggest_budget(timing_seconds=num_groups * group_seconds + (num_groups - 1) * clock.group_start_seconds)
    raise EquipoiseError(
        "budget-too-small",
        f"a step of {untimed[0].batch} examples on each of {pluralize(workers, 'worker')} takes about"
        f" {format_number(untimed[0].step_seconds)} s, and there is no time for two batch sizes:"
        f" this sweep needs about {budget} s",
        f"give --budget-seconds {budget}, what was measured is kept, or choose a smaller --batch-size",
    )


def fit_in_thread(trainer: LeanTorchTrainer) -> GroupTimings:
    """Run the trainer and return its timings; in a thread, because in the main thread Ray would handle Ctrl-C."""
    pool = ThreadPoolExecutor(1)
    try:
        timings: GroupTimings = pool.submit(trainer.fit).result().return_value
        return timings
    finally:
        pool.shutdown(wait=False)


def build_timing_trainer(config: TimingWorkerConfig, folder: Path, gpu: bool) -> LeanTorchTrainer:
    """Build the trainer of one group of workers that times all its batch sizes."""
    trial = config.trial
    return build_trainer(run_timing_worker, asdict(config), trial, folder / f"ray-{trial.workers}", gpu=gpu)


def run_timing_worker(loop_config: JsonObject) -> GroupTimings:
    """Time the batch sizes that fit in memory and in the time of this group, and one of them twice."""
    config = TimingWorkerConfig.from_dict(loop_config)
    torch.set_num_threads(config.trial.threads)
    bench = StepBench(config.trial, get_device())
    start_seconds = bench.max_over_workers(round(time.time() - config.launched_at))
    max_seconds = (config.max_seconds - config.later_groups * start_seconds) / (1 + config.later_groups)
    exchange_seconds = max(0.0, min(ALL_REDUCE_SECONDS, MAX_EXCHANGE_SHARE * max_seconds))
    step_deadline = max_seconds - (exchange_seconds if config.trial.workers > 1 else 0.0)
    schedule = choose_batches(
        config.batches,
        bench.probe,
        lambda: step_deadline - bench.elapsed_seconds(),
        dict(config.known_step_seconds),
    )
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
        elapsed_seconds=bench.elapsed_seconds(),
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
