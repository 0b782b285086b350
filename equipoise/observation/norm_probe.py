"""Squared gradient norms of the noise scale, from the gradients of a loop that somebody else wrote.

Two batch sizes are compared at the same weights: the gradient of each backward pass on each worker, and the gradient
with which the optimizer steps. Where a step has a single backward pass on a single worker, the two are the same and
nothing is measured. Gradients are read as they arrive, before they are exchanged, and at the end of each pass: what
clips them before the step does not matter.
"""

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from equipoise.training.gradient_norms import GradientNorms


class Stopwatch:
    """Stopwatch that sums the seconds of the blocks in which it is the context manager."""

    def __init__(self) -> None:
        self.seconds = self.start = 0.0

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self.start

    def pop_seconds(self) -> float:
        """Return the seconds since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds


class NormProbe:
    """Measures the two norms at every so many steps; in between it costs nothing."""

    def __init__(self, parameters: Sequence[nn.Parameter], workers: int, every: int) -> None:
        self.parameters, self.workers, self.every = parameters, workers, every
        self.norms = GradientNorms()
        self.stopwatch, self.num_measured = Stopwatch(), 0
        self.handles: list[RemovableHandle] = []
        self.pass_norms: list[Tensor] = []  # of the parameters' gradients in the backward pass that goes on
        self.local_norms: list[Tensor] = []
        self.total_norm: Tensor | None = None
        self.initial_norm: Tensor | None = None
        self.micro_batches = 0
        """micro-batches behind each step; 0 before the first step"""

    def count_steps_until_due(self, step: int) -> float:
        """Return the number of steps from this one until norms are to be measured: 0 if in this one, or infinity."""
        is_comparable = self.workers > 1 or self.micro_batches > 1
        return -step % self.every if is_comparable and self.every else math.inf

    def start_measuring(self) -> None:
        """Measure the norms of the step that starts."""
        self.local_norms, self.total_norm, self.initial_norm = [], None, None
        with self.stopwatch:
            self.handles = [p.register_hook(self._read_gradient) for p in self.parameters if p.requires_grad]

    def begin_backward(self) -> None:
        """Note what the gradients hold before the first backward pass of a step: zeros, or what was not zeroed."""
        if not self.handles:
            return
        self.pass_norms = []
        if not self.local_norms:
            with self.stopwatch:
                self.initial_norm = sum_squared_norms([p.grad for p in self.parameters if p.grad is not None])

    def forget_passes(self) -> None:
        """Forget the backward passes of the step so far, whose gradients were thrown away."""
        self.local_norms = []

    def end_backward(self) -> None:
        """Take the norm of the gradient that this worker has computed, and of the one that it holds now."""
        if self.handles and self.pass_norms:
            with self.stopwatch:
                self.local_norms.append(torch.stack(self.pass_norms).sum())
                self.total_norm = sum_squared_norms([p.grad for p in self.parameters if p.grad is not None])

    def end_step(self, micro_batches: int) -> None:
        """Add the norms of the step that was measured, if its gradients can be compared."""
        is_usual = self.micro_batches in (0, micro_batches)  # the last step of an epoch may accumulate fewer
        with self.stopwatch:
            self.stop_measuring()
        self.num_measured += 1
        if is_usual and len(self.local_norms) == micro_batches and self.total_norm is not None:
            local = torch.stack(self.local_norms).mean() * micro_batches**2
            if self.initial_norm is not None:  # gradients that are not zeroed are those of several steps
                local = torch.where(self.initial_norm > 0, torch.nan, local)
            self.norms.add_draw(local, self.total_norm)

    def pop_step_seconds(self) -> float:
        """Return the mean seconds that measuring the norms of a step took since the last call; 0 if none was measured.

        On a GPU they are those of the host.
        """
        measured, self.num_measured = self.num_measured, 0
        return self.stopwatch.pop_seconds() / max(measured, 1)

    def stop_measuring(self) -> None:
        """Remove the hooks from the parameters."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def _read_gradient(self, gradient: Tensor) -> None:
        with self.stopwatch:
            self.pass_norms.append(squared_norm(gradient))


def squared_norm(gradient: Tensor) -> Tensor:
    """Return the squared norm of a gradient, summed in float32 at least; NaN for one that is sparse or sharded."""
    if type(gradient) is not Tensor or gradient.layout != torch.strided:
        return torch.tensor(torch.nan, device=gradient.device)
    dtype = torch.promote_types(gradient.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(gradient.detach(), dtype=dtype)
    return norm.square()


def sum_squared_norms(gradients: Sequence[Tensor]) -> Tensor | None:
    """Return the squared norm of all gradients together; None without any."""
    return torch.stack([squared_norm(gradient) for gradient in gradients]).sum() if gradients else None
