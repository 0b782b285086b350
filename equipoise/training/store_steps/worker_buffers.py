"""Buffers of a model, such as running statistics of batch normalisation, for several workers that take turns."""

import torch
from torch import nn


class WorkerBuffers:
    """Buffers of each worker: equal when a lap begins, its own within a lap, averaged when the lap ends."""

    def __init__(self, model: nn.Module) -> None:
        self.buffers = list(model.buffers())
        self.copies = [[buffer.clone() for buffer in self.buffers]]  # by worker
        self.current = 0

    def begin_lap(self, workers: int) -> None:
        """Give every worker the buffers of the model."""
        self.copies = [[buffer.clone() for buffer in self.buffers] for _ in range(workers)]
        self.current = 0

    def switch_to(self, worker: int) -> None:
        """Let the model have the buffers of a worker."""
        if self.buffers and worker != self.current:
            torch._foreach_copy_(self.copies[self.current], self.buffers)
            torch._foreach_copy_(self.buffers, self.copies[worker])
            self.current = worker

    def end_lap(self) -> None:
        """Give the model the average of what has a fraction, and of the first worker what has none, such as counts."""
        self.switch_to(0)
        for index, buffer in enumerate(self.buffers):
            if buffer.is_floating_point() and len(self.copies) > 1:
                others = [copies[index] for copies in self.copies[1:]]
                buffer.copy_(sum(others, start=buffer.clone()) / len(self.copies))
