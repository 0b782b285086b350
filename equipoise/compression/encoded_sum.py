"""Sum of one flat tensor of each worker, of which each worker sends what its compression encodes.

    for each hosted worker:  `encode_worker` of its tensor      then: `sum_over_workers`

What an encoding leaves out is kept and added to what the same worker encodes next (error feedback; F. Seide et al.,
1-bit stochastic gradient descent and its application to data-parallel distributed training of speech DNNs, 2014; S. P.
Karimireddy et al., Error feedback fixes SignSGD, 2019), so that what was sent and what is kept add up to the sum of all
tensors so far.
"""

from typing import Protocol

import torch
from torch import Tensor

from equipoise.compression.worker_layout import ExchangeChunks, WorkerLayout


class EncodedSum(Protocol):
    """Sum over workers of encoded tensors."""

    def encode_worker(self, index: int, values: Tensor) -> None:
        """Encode what a hosted worker adds, counted from 0 in this process; `values` are overwritten."""

    def sum_over_workers(self, exchange: ExchangeChunks) -> Tensor:
        """Return the sum of what all workers have encoded, with the same bits on all; all processes call this."""

    def pop_error(self) -> Tensor:
        """Return this process's part of what was left out; summed over processes it is all of it."""

    def load_error(self, error: Tensor) -> None:
        """Share what was left out equally among the workers, in place of what they keep."""

    def count_sent_bytes(self) -> int:
        """Return the bytes that leave this process in a sum."""

    @property
    def num_rounds(self) -> int:
        """Messages of a sum that wait for each other."""


class KeptErrors:
    """What the encodings of each hosted worker have left out so far; nothing if errors are not fed back."""

    def __init__(self, layout: WorkerLayout, like: Tensor, error_feedback: bool) -> None:
        self.layout = layout
        self.errors = [torch.zeros_like(like) for _ in layout.hosted] if error_feedback else []

    def add_to(self, index: int, values: Tensor) -> None:
        """Add what a worker has kept to its values."""
        if self.errors:
            values += self.errors[index]

    def sum_hosted(self, like: Tensor) -> Tensor:
        """Return the sum of what the workers of this process have kept."""
        return torch.stack(self.errors).sum(0) if self.errors else torch.zeros_like(like)

    def share(self, error: Tensor) -> None:
        """Give each worker the same part of an error."""
        for own in self.errors:
            own.copy_(error).div_(self.layout.workers)
