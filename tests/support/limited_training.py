"""Training of a deep model by workers of which each has a limit of its memory."""

import ctypes
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist
from torch import nn

from benchmarks.memory import build_workload
from equipoise.config import TrainConfig
from equipoise.training.loop import Training
from equipoise.training.memory.out_of_memory import is_out_of_memory
from tests.support.limited_memory import PROCESS, PeakMemory

WIDTH, LAYERS, STEPS = 768, 24, 2
M_MMAP_THRESHOLD, MMAP_BYTES = -3, 1 << 16


@dataclass(frozen=True)
class LimitedRun:
    """What a worker's training took and gave."""

    peak_bytes: int
    """most memory above that before the model was built"""
    losses: list[float]


def build_deep_model() -> nn.Module:
    """Return many layers of equal size, next to which activations of a few examples are small."""
    layers = [(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(LAYERS)]
    return nn.Sequential(*(layer for pair in layers for layer in pair), nn.Linear(WIDTH, 10))


def train_in_limit(config: TrainConfig, folder: Path, free_bytes: int | None) -> LimitedRun:
    """Take steps in this process, with no more than so many bytes; leave a file in the folder if they are too few."""
    return_freed_memory()
    warm_up(config)
    with limit_data(free_bytes), PeakMemory() as memory:
        try:
            training = Training(config, build_workload("deep", (WIDTH,), build_deep_model))
            training.prepare_all_reduce()
            training.steps.begin(training.loader, 0)
            losses = [float(training.take_steps(1).mean()) for _ in range(STEPS)]
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                (folder / f"out-of-memory-{dist.get_rank()}").touch()
            raise
    return LimitedRun(memory.bytes, losses)


def return_freed_memory() -> None:
    """Let the allocator give tensors back when they are freed: glibc would keep more and more of them."""
    ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)


def build_small_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.ReLU(), nn.Linear(8, 10))


def warm_up(config: TrainConfig) -> None:
    """Load what a first step loads, with a small model, so that only the tensors of the large one count."""
    training = Training(config, build_workload("small", (WIDTH,), build_small_model))
    training.prepare_all_reduce()
    training.steps.begin(training.loader, 0)
    training.take_steps(1)


@contextmanager
def limit_data(free_bytes: int | None) -> Iterator[None]:
    """Give this process so many bytes more than it has, for the length of the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if free_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (PROCESS.memory_info().data + free_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
