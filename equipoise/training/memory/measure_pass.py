"""Bytes that a forward pass keeps, and the peak of it with its backward pass, measured at small batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.memory.peak_memory import Allocations, trace_allocations
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.workloads import Workload
from equipoise.workloads.batch import call_model, map_tensors

Traced = TypeVar("Traced")
Forward = Callable[[], Sequence[Tensor]]
"""forward pass that returns the tensors to hold until the backward pass, which starts at the last of them"""


@dataclass(frozen=True, kw_only=True)
class MeasuredModel:
    """Model whose passes are measured, with the options of its run."""

    config: TrainConfig
    workload: Workload
    model: nn.Module
    device: torch.device

    def load_batch(self, size: int) -> InputsAndTargets:
        """Return the first micro-batch of a run with this batch size, in memory of its own."""
        loader = BatchLoader(replace(self.config, batch_size=size), self.workload, self.device)
        inputs, targets = loader.load_micro_batch(0, 0)
        return map_tensors(inputs, torch.clone), map_tensors(targets, torch.clone)

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which the model computes."""
        config = replace(self.config, compile=False)
        return BackwardPass(config, self.workload, self.model, self.device).autocast()

    def measure(self, size: int) -> "PassBytes":
        """Return the bytes of a pass of so many examples through the model."""
        inputs, targets = self.load_batch(size)

        def run_forward() -> list[Tensor]:
            with self.autocast():
                return [self.workload.loss(call_model(self.model, inputs), targets)]

        return measure_pass(run_forward, self.model, self.device)


class PassBytes(NamedTuple):
    """Bytes of a forward and a backward pass, without the gradients of parameters."""

    kept: int
    """what is held between the two"""
    peak: int


def measure_pass(forward: Forward, model: nn.Module, device: torch.device) -> PassBytes:
    """Return the bytes of a forward pass and of the backward pass after it; nothing of the model changes."""

    def run_backward(output: Tensor) -> None:
        if output.requires_grad:
            torch.autograd.backward(output, torch.ones_like(output))

    with keep_buffers(model), drop_gradients(model):
        held, before = trace_device(forward, device)
        _, after = trace_device(lambda: run_backward(held[-1]), device)
    return PassBytes(before.left, max(before.peak, before.left + after.peak))


def trace_device(function: Callable[[], Traced], device: torch.device) -> tuple[Traced, Allocations]:
    """Call a function and return its result, with what it allocated on a device above what was there."""
    if device.type != "cuda":
        return trace_allocations(function)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    result = function()
    left = torch.cuda.memory_allocated(device) - before
    return result, Allocations(torch.cuda.max_memory_allocated(device) - before, left)


def fit_passes(passes: Mapping[int, PassBytes]) -> dict[str, Any]:
    """Return the bytes of passes as fields of `ModelSizes`: lines through those of two batch sizes."""
    (small, first), (large, second) = passes.items()
    slopes = [max(0.0, (b - a) / (large - small)) for a, b in zip(first, second, strict=True)]
    kept, peak = (max(0.0, value - slope * small) for value, slope in zip(first, slopes, strict=True))
    return {
        "kept_bytes": kept,
        "kept_bytes_per_example": slopes[0],
        "pass_bytes": peak,
        "pass_bytes_per_example": slopes[1],
    }


@contextmanager
def keep_buffers(model: nn.Module) -> Iterator[None]:
    """Give a model its running statistics back at the end."""
    before = [buffer.clone() for buffer in model.buffers()]
    yield
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), before, strict=True):
            buffer.copy_(value)


@contextmanager
def drop_gradients(model: nn.Module) -> Iterator[None]:
    """Drop each gradient as soon as it is known, as buckets take them."""

    def drop(parameter: Tensor) -> None:
        parameter.grad = None

    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    handles = [parameter.register_post_accumulate_grad_hook(drop) for parameter in trainable]
    yield
    for handle in handles:
        handle.remove()
