"""Sum of tensors of which each worker sends the numbers of largest magnitude with their places.

A. F. Aji and K. Heafield, Sparse communication for distributed gradient descent, 2017; Y. Lin et al., Deep gradient
compression, 2018. What is not sent is kept and added to what the worker sends next.
"""

import math

import torch
from torch import Tensor

from equipoise.compression.encoded_sum import KeptErrors
from equipoise.compression.worker_layout import ExchangeChunks, WorkerLayout
from equipoise.planning.exchanges.compression_cost import PLACE_BYTES, count_kept_numbers


class TopShareSum:
    """Sum over workers of flat tensors with the shape and dtype of `like`, of which a share is sent."""

    num_rounds = 1

    def __init__(self, layout: WorkerLayout, like: Tensor, share: float, error_feedback: bool = True) -> None:
        self.layout, self.like = layout, like
        self.num_kept = count_kept_numbers(len(like), share)
        self.errors = KeptErrors(layout, like, error_feedback)
        self.chunk_bytes = self.num_kept * (like.element_size() + PLACE_BYTES)
        self.encoded: list[Tensor] = [like.new_empty(0)] * len(layout.hosted)

    def encode_worker(self, index: int, values: Tensor) -> None:
        """Encode what a hosted worker adds, counted from 0 in this process; `values` are overwritten."""
        self.errors.add_to(index, values)
        places = find_largest(values, self.num_kept)
        self.encoded[index] = torch.cat([values[places].view(torch.uint8), places.int().view(torch.uint8)])
        if self.errors.errors:
            values[places] = 0
            self.errors.errors[index].copy_(values)

    def sum_over_workers(self, exchange: ExchangeChunks) -> Tensor:
        """Return the sum of what all workers have encoded, with the same bits on all; all processes call this."""
        own = torch.cat(self.encoded)
        sizes = [self.chunk_bytes * count for count in self.layout.hosted_counts]
        gathered = torch.cat(exchange([own] * self.layout.processes, sizes))
        total = torch.zeros_like(self.like)
        for chunk in gathered.split(self.chunk_bytes):  # in the order of workers
            value_bytes = chunk[: self.num_kept * self.like.element_size()].clone()  # at an address that can be viewed
            places = chunk[len(value_bytes) :].clone().view(torch.int32)
            total[places.long()] += value_bytes.view(self.like.dtype)  # no place comes twice from a worker
        return total

    def pop_error(self) -> Tensor:
        """Return this process's part of what was left out; summed over processes it is all of it."""
        return self.errors.sum_hosted(self.like)

    def load_error(self, error: Tensor) -> None:
        """Share what was left out equally among the workers, in place of what they keep."""
        self.errors.share(error)

    def count_sent_bytes(self) -> int:
        """Return the bytes that leave this process in a sum."""
        return (self.layout.processes - 1) * len(self.layout.hosted) * self.chunk_bytes


def find_largest(values: Tensor, count: int) -> Tensor:
    """Return the places of the numbers of largest magnitude in their order; of equal ones the first are taken.

    What is not a number counts as the largest, so that it is not hidden.
    """
    magnitudes = values.abs().nan_to_num_(nan=math.inf, posinf=math.inf)
    threshold = magnitudes.topk(count, sorted=False).values.min()
    above = torch.nonzero(magnitudes > threshold).view(-1)
    equal = torch.nonzero(magnitudes == threshold).view(-1)[: count - len(above)]
    return torch.cat([above, equal]).sort().values if len(above) and len(equal) else torch.cat([above, equal])
