"""Steps of models in parts between simulated hosts, timed in turns and weighed; `gloo_hosts` runs it in each worker."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol, TypedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from benchmarks.sharded_models import BUBBLE_SLOWDOWN, MODELS, SleepingPass, pause_layers
from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.sharding.full.counted_exchanges import gather_parts, sum_parts
from equipoise.training.sharding.full.model_units import list_units
from equipoise.training.sharding.pipeline.pipeline_steps import PipelineSteps
from tests.network.store_steps import read_sent_bytes

GENERATOR_BYTES = 5056  # state of torch's generator on a CPU, which goes with values where layers draw numbers
WARMUP_STEPS = 2
CALIBRATION_REPEATS = 5
MESSAGES = 20  # of some KB, as a ring's messages follow each other
EXCHANGE_BYTES = 1 << 12, 1 << 18, 1 << 20, 1 << 22  # none between: token buckets let some tens of KB pass at once


class Contestant(Protocol):
    """Whoever takes steps of a model."""

    def take_steps(self, count: int) -> object:
        """Take so many steps, on all workers together."""


class TurnFigures(TypedDict):
    """What a contestant took in each of its turns, on one worker."""

    seconds: list[float]
    """seconds of a step"""
    cpu_seconds: list[float]
    """CPU seconds of this process in a step"""
    counted_bytes: list[float]
    """bytes that this host sends in a step, as the kernel counts them"""
    recorded_bytes: int
    """bytes out of the worker that sends most, as the lap says"""
    peak_bytes: int


class CalibrationTurn(TypedDict):
    """What predicts the steps of a round, in seconds."""

    forward: float
    """forward pass of a micro-batch, without an exchange, while the other workers compute theirs"""
    passes: float
    """both passes"""
    update: float
    divided_passes: float
    """both passes of a model that `fully_shard` divides among one worker, which has nobody to wait for"""
    exchanges: dict[str, list[tuple[int, float]]]
    """bytes and seconds of exchanges of each kind between two workers, while other pairs exchange theirs"""
    message: float
    """a small message of a ring of two workers, while other pairs send theirs"""


def build_config(model: str, sharding: str, accumulation: int, steps: int = WARMUP_STEPS) -> TrainConfig:
    """Return the options of a run that ends its first lap after so many steps."""
    config = TrainConfig(
        workload=f"benchmarks.sharded_models:{model}",
        batch_size=MODELS[model][1],
        workers=dist.get_world_size(),
        grad_accumulation=accumulation,
        sharding=sharding,
        noise_scale_every=0,
        augment=False,
        lr=1e-4,
        max_examples=1 << 30,
    )
    return replace(config, eval_every=steps * config.global_batch)


def build_training(model: str, sharding: str, accumulation: int) -> Training:
    config = build_config(model, sharding, accumulation)
    training = Training(config, MODELS[model][0](config))
    pause_layers(config, training.model)
    return training


def time_turns(
    model: str, shardings: list[str], accumulation: int, steps: int, rounds: int
) -> tuple[dict[str, TurnFigures], list[CalibrationTurn]]:
    """Time steps of all shardings and peers in turns, after a lap of each, and what predicts them in every round."""
    figures: dict[str, TurnFigures] = {}
    contestants: dict[str, Contestant] = {}
    calibration = Calibration(model, accumulation)
    for name in shardings:
        lap = None
        if name in PEERS:
            contestants[name] = PEERS[name](build_training(model, "none", accumulation))
            contestants[name].take_steps(WARMUP_STEPS)
        else:
            contestants[name] = training = build_training(model, name, accumulation)
            lap = next(training.laps())
        figures[name] = {
            "seconds": [],
            "cpu_seconds": [],
            "counted_bytes": [],
            "recorded_bytes": (lap and lap.sent_bytes) or 0,
            "peak_bytes": (lap and lap.peak_bytes) or 0,
        }
    turns = []
    for _ in range(rounds):
        turns.append(calibration.measure())
        for name, contestant in contestants.items():
            add_turn(figures[name], contestant, steps)
    return figures, turns


def add_turn(figures: TurnFigures, contestant: Contestant, steps: int) -> None:
    """Add what steps take on this worker, with the wait for the slowest."""
    dist.barrier()
    sent, cpu, start = read_sent_bytes(), time.process_time(), time.perf_counter()
    contestant.take_steps(steps)
    own_cpu = time.process_time() - cpu
    dist.barrier()
    figures["seconds"].append((time.perf_counter() - start) / steps)
    figures["cpu_seconds"].append(own_cpu / steps)
    figures["counted_bytes"].append((read_sent_bytes() - sent) / steps)


class Calibration:
    """Measurement of passes without exchange and of sums without passes."""

    def __init__(self, model: str, accumulation: int) -> None:
        pairs = [dist.new_group([rank, rank + 1]) for rank in range(0, dist.get_world_size(), 2)]
        self.pair: dist.ProcessGroup = pairs[dist.get_rank() // 2]  # type: ignore[assignment]  # this worker is in it
        training = build_training(model, "none", accumulation)
        self.whole = Peer(training, lambda module: module)
        self.divided = build_fully_shard_peer(training, parts=1)
        self.micros = len(training.micro_indices)
        total = sum(parameter.nbytes for parameter in self.whole.module.parameters())
        self.tensors = [torch.zeros(size // 4) for size in (*EXCHANGE_BYTES, total)]
        for peer in (self.whole, self.divided):
            peer.take_steps(WARMUP_STEPS)

    def measure(self) -> CalibrationTurn:
        """Measure everything once more; all workers do it together."""
        training = self.whole.training
        inputs, targets = training.loader.load_micro_batch(0, 0)

        def run_forward() -> object:
            return training.workload.loss(self.whole.module(inputs), targets)

        forward = self.time(run_forward)
        update = self.time(self.whole.optimizer.step)
        whole, divided = (self.time(partial(peer.take_steps, 1)) for peer in (self.whole, self.divided))
        exchanges = {
            name: [(tensor.nbytes, self.time(partial(function, tensor), run_forward)) for tensor in tensors]
            for name, function, tensors in (
                ("ring", partial(dist.all_reduce, group=self.pair), self.tensors),
                ("gather", self.gather, self.tensors[:-1]),
                ("scatter", self.scatter, self.tensors[:-1]),
            )
        }
        passes, divided_passes = ((seconds - update) / self.micros for seconds in (whole, divided))
        return {
            "forward": forward,
            "passes": passes,
            "update": update,
            "divided_passes": divided_passes,
            "exchanges": exchanges,
            "message": self.time(self.swap_messages) / MESSAGES,
        }

    def swap_messages(self) -> None:
        """Send small messages to the other worker of the pair while it sends as many, one after another."""
        peer = 1 - dist.get_rank(self.pair)
        received, sent = torch.empty_like(self.tensors[0]), self.tensors[0]
        for _ in range(MESSAGES):
            works = [
                dist.irecv(received, group=self.pair, group_src=peer),
                dist.isend(sent, group=self.pair, group_dst=peer),
            ]
            for work in works:
                if work is not None:
                    work.wait()

    def gather(self, tensor: torch.Tensor) -> None:
        """Gather the halves of a tensor."""
        gather_parts(tensor, tensor[: len(tensor) // 2].clone(), self.pair)

    def scatter(self, tensor: torch.Tensor) -> None:
        """Sum the halves of a tensor, each on one worker."""
        sum_parts(torch.empty(len(tensor) // 2), tensor, self.pair)

    def time(self, function: Callable[[], object], between: Callable[[], object] = lambda: None) -> float:
        """Return the median seconds of a call on the slowest worker, after a call of another function each time.

        Links that were at rest while a pass computed take longer than those that are always busy.
        """
        seconds = torch.zeros(CALIBRATION_REPEATS)
        for repeat in range(CALIBRATION_REPEATS):
            between()
            dist.barrier()
            start = time.perf_counter()
            function()
            seconds[repeat] = time.perf_counter() - start
        dist.all_reduce(seconds, dist.ReduceOp.MAX)
        return float(seconds.median())


class Peer:
    """Loop by hand around a model that torch divides or sums by itself."""

    def __init__(self, training: Training, build_module: Callable[[nn.Module], nn.Module]) -> None:
        self.training, self.step = training, 0
        model = training.workload.model().train()
        self.module = build_module(model)
        pause_layers(training.config, self.module)
        is_divided = any(isinstance(parameter, DTensor) for parameter in self.module.parameters())
        fused = None if is_divided else True  # torch has no fused kernels for DTensors
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1e-4, momentum=0.9, fused=fused)

    def take_steps(self, count: int) -> None:
        """Take so many steps, summing over workers in the last micro-batch of each where torch lets one choose."""
        for _ in range(count):
            self.optimizer.zero_grad(set_to_none=True)
            micros = self.training.micro_indices
            for index in micros:
                self.let_sum(index == micros[-1])
                inputs, targets = self.training.loader.load_micro_batch(self.step, index)
                loss = self.training.workload.loss(self.module(inputs), targets)
                (loss / len(micros)).backward()
            self.optimizer.step()
            self.step += 1

    def let_sum(self, is_last: bool) -> None:
        """Choose whether the next backward pass sums gradients."""
        if isinstance(self.module, nn.parallel.DistributedDataParallel):
            self.module.require_backward_grad_sync = is_last


def build_fully_shard_peer(training: Training, parts: int = 0) -> Peer:
    """Return a peer that torch's `fully_shard` divides in the units of --sharding full, by default among all."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    parts = parts or dist.get_world_size()
    mesh = init_device_mesh("cpu", (dist.get_world_size() // parts, parts), mesh_dim_names=("replica", "part"))["part"]

    def divide(model: nn.Module) -> nn.Module:
        for unit in [*list_units(model), model]:
            fully_shard(unit, mesh=mesh, reshard_after_forward=True)
        return model

    return Peer(training, divide)


PEERS: dict[str, Callable[[Training], Peer]] = {
    "DDP": lambda training: Peer(training, nn.parallel.DistributedDataParallel),
    "fully_shard": build_fully_shard_peer,
}


def measure_bubbles(model: str, accumulations: list[int], steps: int) -> dict[int, list[tuple[float, float]]]:
    """Return the seconds of each step, and those in which this stage computes, by micro-batches a step.

    Each worker has a stage. Sleeping layers sleep longer, so that messages take a small share of the time.
    """
    SleepingPass.slowdown = BUBBLE_SLOWDOWN
    workers = dist.get_world_size()
    trainings = {count: build_training(model, f"pipeline:{workers}", count) for count in accumulations}
    seconds: dict[int, list[tuple[float, float]]] = {count * workers: [] for count in accumulations}
    for training in trainings.values():
        next(training.laps())
    for _ in range(steps):
        for count, training in trainings.items():
            assert isinstance(training.steps, PipelineSteps)
            training.steps.record_timeline()
            dist.barrier()
            training.take_steps(1)
            spans = training.steps.list_spans()
            computing = sum(span.end - span.start for span in spans if span.kind != "wait")
            seconds[count * workers].append((spans[-1].end - spans[0].start, computing))
    return seconds
