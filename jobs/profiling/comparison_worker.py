"""Time steps of one worker and of several that share its batch, in turns, with one group of Ray Train workers."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import ray.train
import torch
from ray.train.torch import get_device

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware import describe_hardware
from equipoise.planning.device_comparison.comparison_report import DeviceComparison, SharedSteps
from equipoise.planning.device_comparison.predict_sharing import MeasuredTurns, compare_steps
from equipoise.profiling.layer_work import count_layer_work
from equipoise.profiling.step_turns import build_pass, choose_block_steps, try_training
from equipoise.profiling.stepped_training import SteppedTraining, gather_objects, gather_rows
from equipoise.training.comm_benchmark import time_turns
from equipoise.training.gradient_sync import GradientAllReduce, GradientBucket
from equipoise.type_aliases import JsonObject
from equipoise.workloads import Workload, load_workload
from jobs.cluster.wait import wait_for_slots
from jobs.profiling.alternating_group import AlternatingGroup
from jobs.ray_train.trainer import build_trainer, fit_in_thread

MIN_COMPARED_TURNS, MAX_COMPARED_TURNS = 3, 9
MIN_BATCHES = 2  # a crossing lies between two of them
EXCHANGE_ROUNDS, WARM_ROUNDS = 30, 3  # of the exchange by itself, in each turn


@dataclass(frozen=True, kw_only=True)
class ComparisonWorkerConfig:
    """What the workers of a comparison measure."""

    trial: TrainConfig
    """options of the run on one worker"""
    workers: int
    """workers that one is compared with"""
    batches: list[int]
    """batches of all workers together, the smallest first, of which those are left out that there is no time for"""
    measured: bool
    """whether steps of several workers are measured too"""
    seconds: float
    """time for all turns, unless three take longer"""

    @property
    def threads(self) -> int:
        """Return the CPUs that a worker asks for."""
        return self.trial.threads

    @classmethod
    def from_dict(cls, loop_config: JsonObject) -> "ComparisonWorkerConfig":
        """Build the configuration from the dictionary that Ray Train passes on."""
        return cls(**loop_config | {"trial": TrainConfig(**loop_config["trial"])})


def compare_on_cluster(config: ComparisonWorkerConfig, folder: Path, gpu: bool) -> DeviceComparison:
    """Start workers that time steps in turns, and return the comparison; Ray keeps its own files in `folder`."""
    wait_for_slots(config.workers, config.threads, gpu)
    trainer = build_trainer(run_comparison_worker, asdict(config), config, folder, gpu=gpu)
    trainer.work, trainer.failure_hint = "comparing", "give smaller --batch-sizes if memory ran out, or try again"
    comparison: DeviceComparison = fit_in_thread(trainer)
    return comparison


def run_comparison_worker(loop_config: JsonObject) -> DeviceComparison:
    """Time steps in a worker of Ray Train, alone and with the others, and return the comparison."""
    config = ComparisonWorkerConfig.from_dict(loop_config)
    torch.set_num_threads(config.threads)
    workload = load_workload(config.trial)
    bench = SharingBench(config, workload, AlternatingGroup(get_device()), get_device())
    nodes = max(int(str(rank)) for rank in gather_objects(ray.train.get_context().get_node_rank())) + 1
    batches, turns = bench.measure_turns()
    compared = compare_steps(batches, turns)
    layers = count_layer_work(config.trial, workload, bench.device)
    return DeviceComparison(
        config=config.trial.with_defaults(workload.defaults),
        machine=describe_hardware(bench.device),
        nodes=nodes,
        workers=config.workers,
        train_examples=len(workload.train),
        gradient_bytes=bench.gradient_bytes,
        flop_per_example=sum(layer.forward_flop + layer.backward_flop for layer in layers),
        exchange_seconds=statistics.median(turns.exchange),
        rows=compared.rows,
        predicted_crossing=compared.predicted_crossing,
        measured_crossing=compared.measured_crossing,
    )


@dataclass(kw_only=True)
class TurnSeconds:
    """Seconds that were measured so far, by batch and turn."""

    one: dict[int, list[float]] = field(default_factory=dict)
    beside: dict[int, list[float]] = field(default_factory=dict)
    exchange: list[float] = field(default_factory=list)
    last_bucket: list[float] = field(default_factory=list)
    several: dict[int, list[SharedSteps]] = field(default_factory=dict)


class SharingBench:
    """Timer of the steps of one worker and of all; all workers of a group build it and call its methods together."""

    def __init__(
        self, config: ComparisonWorkerConfig, workload: Workload, group: AlternatingGroup, device: torch.device
    ) -> None:
        self.config, self.workload, self.group, self.device = config, workload, group, device
        self.gradient_bytes = 0

    def measure_turns(self, max_turns: int = MAX_COMPARED_TURNS) -> tuple[list[int], MeasuredTurns]:
        """Return the batches that were compared, and the seconds of each turn."""
        config = self.config
        counts = self.group.work_alone(self.choose_step_counts)
        batches = [batch for batch in config.batches if batch in counts]
        if len(batches) < MIN_BATCHES:
            raise EquipoiseError(
                "memory-exceeded", "no two of the batches fit in memory", "choose smaller ones with --batch-sizes"
            )
        seconds, start = TurnSeconds(), time.monotonic()
        rng = np.random.default_rng(0)  # all workers draw the same orders
        for turn in range(max_turns):
            if turn >= MIN_COMPARED_TURNS and self.longest_seconds(start) > config.seconds:
                break
            self.take_turn(seconds, batches, counts, rng)
        return batches, MeasuredTurns(
            workers=config.workers,
            one=seconds.one,
            beside=seconds.beside,
            exchange=seconds.exchange,
            last_bucket=seconds.last_bucket,
            several=seconds.several,
            is_hidden=self.device.type == "cuda",
        )

    def take_turn(
        self, seconds: TurnSeconds, batches: Sequence[int], counts: Mapping[int, int], rng: np.random.Generator
    ) -> None:
        """Time the exchange, then steps of all workers at each batch, without an exchange, and of one worker."""
        self.time_exchanges(seconds)
        if self.config.measured:
            for batch in rng.permutation(batches).tolist():
                seconds.several.setdefault(batch, []).append(self.time_shared_steps(batch, counts[batch]))
        parts: list[int] = rng.permutation([batch // self.config.workers for batch in batches]).tolist()
        by_worker = self.group.work_apart(lambda: {size: self.time_beside_others(size, counts[size]) for size in parts})
        for size in parts:
            seconds.beside.setdefault(size, []).append(max(own[size] for own in by_worker))
        sizes: list[int] = rng.permutation(sorted(counts)).tolist()
        own = self.group.work_alone(lambda: {size: self.time_own_steps(size, counts[size]) for size in sizes})
        for size, taken in own.items():
            seconds.one.setdefault(size, []).append(taken)

    def choose_step_counts(self) -> dict[int, int]:
        """Return how many steps a block of each batch size of one worker has, without those that take too long.

        The two smallest batches are compared however long they take.
        """
        counts: dict[int, int] = {}
        turn_seconds = 0.0
        for place, batch in enumerate(self.config.batches, 1):
            start, sizes = time.monotonic(), (batch // self.config.workers, batch)
            for size in sizes:
                if size in counts:
                    continue
                stepped = try_training(self.build_own_trial(size), self.workload, self.device)
                if stepped is None:
                    return keep_pairs(counts, self.config)
                counts[size] = choose_block_steps(stepped)
                stepped.take_block(counts[size])
            turn_seconds += (2 + self.config.measured) * (time.monotonic() - start)
            is_late = MIN_COMPARED_TURNS * turn_seconds > self.config.seconds
            if is_late and place >= MIN_BATCHES:
                break
        return keep_pairs(counts, self.config)

    def time_own_steps(self, size: int, count: int) -> float:
        """Return the mean seconds of a step of one worker, in a block after a warm one."""
        stepped = SteppedTraining(self.build_own_trial(size), self.workload, self.device)
        stepped.take_block(stepped.interval)
        return stepped.take_block(count)["lap"]

    def time_beside_others(self, size: int, count: int) -> float:
        """Return the mean seconds of a step of this worker by itself while the others take as many."""
        stepped = SteppedTraining(self.build_own_trial(size), self.workload, self.device)
        stepped.take_block(stepped.interval)
        self.group.wait_for_all()
        return stepped.take_block(count)["lap"]

    def time_shared_steps(self, batch: int, count: int) -> SharedSteps:
        """Return the mean seconds of a step of all workers that share a batch, in a block after a warm one."""
        stepped = SteppedTraining(self.build_shared_trial(batch), self.workload, self.device)
        stepped.take_block(stepped.interval)
        own = stepped.take_block(count)
        rows = gather_rows([own["lap"], own.get("exchange", 0.0)], self.device)
        return SharedSteps(seconds=max(row[0] for row in rows), exchange_seconds=min(row[1] for row in rows))

    def time_exchanges(self, seconds: TurnSeconds) -> None:
        """Time the exchange of all gradients by itself, and that of the last bucket, as medians of the slowest worker.

        Before each the workers pass a batch through their models, as in a step: threads that wait for messages have
        gone to sleep then, and workers do not end at the same time.
        """
        stepped = SteppedTraining(self.build_shared_trial(self.config.trial.batch_size), self.workload, self.device)
        self.gradient_bytes = sum(parameter.nbytes for parameter in stepped.training.trainable_parameters)
        sync, run_pass = stepped.training.gradient_sync, build_pass(stepped)
        turns = (run_pass, lambda: exchange_all(sync), run_pass, lambda: exchange_bucket(sync.buckets[-1]))
        time_turns(turns, WARM_ROUNDS, self.device)
        _, whole, _, last = zip(*time_turns(turns, EXCHANGE_ROUNDS, self.device), strict=True)
        seconds.exchange.append(statistics.median(whole))
        seconds.last_bucket.append(statistics.median(last))

    def longest_seconds(self, start: float) -> float:
        """Return the seconds since `start` on the worker whose clock says most."""
        return max(row[0] for row in gather_rows([time.monotonic() - start], self.device))

    def build_own_trial(self, size: int) -> TrainConfig:
        """Return the options of one worker that takes a batch alone."""
        return replace(self.config.trial, workers=1, batch_size=size)

    def build_shared_trial(self, batch: int) -> TrainConfig:
        """Return the options of all workers that share a batch."""
        return replace(self.config.trial, workers=self.config.workers, batch_size=batch // self.config.workers)


def keep_pairs(counts: Mapping[int, int], config: ComparisonWorkerConfig) -> dict[int, int]:
    """Return the steps of a block of those batches of which the part of a worker has some too, and of these parts."""
    batches = [batch for batch in config.batches if batch in counts and batch // config.workers in counts]
    return {size: counts[size] for batch in batches for size in (batch // config.workers, batch)}


def exchange_all(sync: GradientAllReduce) -> None:
    """Sum all gradients as a step does, with nothing to hide it."""
    sync.begin_last_micro_batch(None)
    sync.launch_remaining()
    sync.wait_for_sums()


def exchange_bucket(bucket: GradientBucket) -> None:
    """Sum one bucket of gradients."""
    bucket.start_exchange().wait()
    bucket.sum_received_rows()
