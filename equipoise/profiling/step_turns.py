"""Blocks of steps of several settings in turns, and both passes alone: what predictions and trials are timed by."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch

from equipoise.config import TrainConfig
from equipoise.profiling.machine_limits import wait_for_device
from equipoise.profiling.profile_report import PassRatio
from equipoise.profiling.stepped_training import SteppedTraining, gather_rows
from equipoise.training.memory.out_of_memory import is_out_of_memory
from equipoise.workloads import Workload

BLOCK_SECONDS = 0.15  # of a block of steps, unless a step takes longer
MAX_BLOCK_STEPS = 50
MIN_BLOCK_TURNS, MAX_BLOCK_TURNS = 5, 11
TURNS_SECONDS = 4.0  # for all turns of two settings
ALONE_PASSES = 15
CACHED_BATCHES = 4  # taken again and again where no loader is to be waited for


def choose_block_steps(stepped: SteppedTraining) -> int:
    """Return how many steps a block has, the same on all workers; this takes three of them."""
    stepped.take_block(stepped.interval)  # allocators and kernels warm up
    seconds = time_slowest(stepped, max(2, stepped.interval))
    intervals = BLOCK_SECONDS / (seconds * stepped.interval)
    return int(min(max(2.0, intervals), MAX_BLOCK_STEPS)) * stepped.interval


def time_slowest(stepped: SteppedTraining, count: int) -> float:
    """Take a block of steps, and return the mean seconds of a step on the slowest worker.

    Steps come before it for which batches were read while another training took its turn.
    """
    if ahead := stepped.steps_read_ahead:
        stepped.take_block(ahead)
    own = stepped.take_block(count)["lap"]
    return max(row[0] for row in gather_rows([own], stepped.training.device))


def time_in_turns(trainings: Sequence[SteppedTraining], counts: Sequence[int], seconds: float) -> list[list[float]]:
    """Take blocks of all trainings in turns for about so many seconds; return the seconds of a step by turn."""
    turns: list[list[float]] = []
    start = time.monotonic()
    while len(turns) < MIN_BLOCK_TURNS or (len(turns) < MAX_BLOCK_TURNS and has_time(start, seconds, trainings[0])):
        turns.append([time_slowest(*pair) for pair in zip(trainings, counts, strict=True)])
    return turns


def has_time(start: float, seconds: float, stepped: SteppedTraining) -> bool:
    """Return whether no worker has measured for so many seconds yet."""
    return max(row[0] for row in gather_rows([time.monotonic() - start], stepped.training.device)) < seconds


def try_training(config: TrainConfig, workload: Workload, device: torch.device) -> SteppedTraining | None:
    """Build a training with other options; None if it does not fit in memory. All workers call this."""
    try:
        stepped = SteppedTraining(config, workload, device)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return stepped if stepped.training.fits_in_memory() else None


def measure_gain(base: SteppedTraining, other: SteppedTraining, seconds: float = TURNS_SECONDS) -> float:
    """Return the examples per second of one training over those of another, as the median of turns."""
    trainings = [base, other]
    turns = time_in_turns(trainings, [choose_block_steps(stepped) for stepped in trainings], seconds)
    batches = [stepped.training.config.global_batch for stepped in trainings]
    return statistics.median(own / batches[0] / (with_change / batches[1]) for own, with_change in turns)


def time_batches(config: TrainConfig, workload: Workload, device: torch.device) -> dict[int, float]:
    """Return the median seconds of a step at the batch size of a run, its half and its quarter, in turns."""
    sizes = sorted({size for size in (config.batch_size // 4, config.batch_size // 2, config.batch_size) if size > 1})
    if len(sizes) < 2:
        return {}
    trainings = [SteppedTraining(replace(config, batch_size=size), workload, device) for size in sizes]
    counts = [choose_block_steps(stepped) for stepped in trainings]
    turns = time_in_turns(trainings, counts, TURNS_SECONDS)
    return {size: statistics.median(column) for size, column in zip(sizes, zip(*turns, strict=True), strict=True)}


def time_pass_ratio(base: SteppedTraining, other: SteppedTraining, seconds: float = TURNS_SECONDS / 2) -> PassRatio:
    """Time both passes alone with other options over those without, on each worker by itself."""
    runs = [build_pass(stepped) for stepped in (base, other)]
    for run in runs:
        run()  # kernels warm up, and a model is compiled
    device = base.training.device
    slowest = max(row[0] for row in gather_rows([time_call(runs[0], device)], device))
    repeats = int(min(max(1.0, BLOCK_SECONDS / 2 / slowest), MAX_BLOCK_STEPS))
    ratios: list[float] = []
    start = time.monotonic()
    while len(ratios) < MIN_BLOCK_TURNS or (len(ratios) < MAX_BLOCK_TURNS and has_time(start, seconds, base)):
        own, with_change = (sum(time_call(run, device) for _ in range(repeats)) for run in runs)
        ratios.append(with_change / own)
    logs = gather_rows(np.log(ratios).tolist(), device)
    medians = [float(np.median(row)) for row in logs]
    sd = max(float(np.std(row, ddof=1)) for row in logs) / len(ratios) ** 0.5
    return PassRatio(ratio=float(np.exp(np.mean(medians))), log_sd=sd)


class PassesAlone:
    """Both passes of a worker's steps alone, with a batch in memory: as fast as in steps that never wait for one."""

    def __init__(self, stepped: SteppedTraining) -> None:
        self.run, self.device = build_pass(stepped), stepped.training.device
        self.micro_steps = len(stepped.training.micro_indices)
        self.run()  # kernels warm up
        slowest = max(row[0] for row in gather_rows([time_call(self.run, self.device)], self.device))
        # the same on all workers: a loss may wait for the others
        self.repeats = int(min(max(1.0, BLOCK_SECONDS / 2 / slowest), ALONE_PASSES))
        self.seconds: list[float] = []

    def take_turn(self) -> None:
        """Take and time some passes."""
        self.seconds += [time_call(self.run, self.device) for _ in range(self.repeats)]

    def find_slowest_seconds(self) -> float:
        """Return the median seconds of the passes of a step, on the slowest worker."""
        own = statistics.median(self.seconds) * self.micro_steps
        return max(row[0] for row in gather_rows([own], self.device))


def build_pass(stepped: SteppedTraining) -> Callable[[], None]:
    """Return a function that runs the forward and backward pass of a micro-batch, without an exchange."""
    training = stepped.training
    inputs, targets = next(training.loader.train_batches(training.micro_indices, 0))

    def run() -> None:
        for parameter in training.trainable_parameters:
            parameter.grad = None
        training.sharded.try_micro_batch(training.backward_pass, inputs, targets, 0, training.micro_indices[0])

    return run


def time_call(run: Callable[[], None], device: torch.device) -> float:
    """Return the seconds of a call, until the device has finished it."""
    start = time.perf_counter()
    run()
    wait_for_device(device)
    return time.perf_counter() - start


def keep_batches(stepped: SteppedTraining) -> None:
    """Let a training take a few batches again and again, for which it never waits."""
    steps: Any = stepped.training.steps
    count = CACHED_BATCHES * len(stepped.training.micro_indices)
    batches: Iterator[Any] = stepped.training.loader.train_batches(stepped.training.micro_indices, 0)
    steps.batches = cycle([*islice(batches, count)])


def time_median(stepped: SteppedTraining, count: int) -> float:
    """Return the median seconds of a step over several blocks."""
    return statistics.median(time_slowest(stepped, count) for _ in range(MIN_BLOCK_TURNS))
