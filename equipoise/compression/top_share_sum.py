"""Sum of tensors of which each worker sends the numbers of largest magnitude with their places.

A. F. Aji and K. Heafield, Sparse communication for distributed gradient descent, 2017; Y. Lin et al., Deep gradient
compression, 2018. What is not sent is kept and added to what the worker sends next.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from equipoise.compression.kept_errors import load_worker_error, worker_error_name
from equipoise.compression.worker_layout import ExchangeChunks, WorkerLayout
from equipoise.planning.exchanges.compression_cost import PLACE_BYTES, count_kept_numbers

SAMPLE_NUMBERS = 1 << 14  # from which a threshold is estimated
SAMPLE_MARGIN = 1.3  # of numbers above that threshold over those that are sent


class TopShareSum:
    """Sum over workers of flat tensors with the shape and dtype of `like`, of which a share is sent."""

    num_rounds = 1

    def __init__(self, layout: WorkerLayout, like: Tensor, share: float, error_feedback: bool = True) -> None:
        self.layout = layout
        self.num_kept = count_kept_numbers(len(like), share)
        self.errors = [torch.zeros_like(like) for _ in layout.hosted] if error_feedback else []
        self.chunk_bytes = self.num_kept * (like.element_size() + PLACE_BYTES)
        self.encoded: list[Tensor] = [like.new_empty(0)] * len(layout.hosted)
        self.total = torch.zeros_like(like)

    def encode_worker(self, index: int, values: Tensor) -> None:
        """Encode what a hosted worker adds, counted from 0 in this process."""
        if self.errors:
            values = self.errors[index].add_(values)
        places = find_largest(values, self.num_kept)
        self.encoded[index] = torch.cat([values[places].view(torch.uint8), places.int().view(torch.uint8)])
        if self.errors:
            values[places] = 0

    def sum_over_workers(self, exchange: ExchangeChunks) -> Tensor:
        """Sum what all workers have encoded to `total`, with the same bits on all; all processes call this."""
        own = torch.cat(self.encoded)
        sizes = [self.chunk_bytes * count for count in self.layout.hosted_counts]
        gathered = torch.cat(exchange([own] * self.layout.processes, sizes))
        self.total.zero_()
        for chunk in gathered.split(self.chunk_bytes):  # in the order of workers
            value_bytes = chunk[: self.num_kept * self.total.element_size()].clone()  # at an address that can be viewed
            places = chunk[len(value_bytes) :].clone().view(torch.int32)
            self.total[places.long()] += value_bytes.view(self.total.dtype)  # no place comes twice from a worker
        return self.total

    def list_errors(self) -> dict[str, Tensor]:
        """Return what each hosted worker has left out; nothing without error feedback."""
        return dict(zip(map(worker_error_name, self.layout.hosted), self.errors, strict=False))

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` of these workers returned, whichever processes computed for them."""
        for worker, error in zip(self.layout.hosted, self.errors, strict=False):
            load_worker_error(tensors, worker, error)

    def count_sent_bytes(self) -> int:
        """Return the bytes that leave this process in a sum."""
        return (self.layout.processes - 1) * len(self.layout.hosted) * self.chunk_bytes


def find_largest(values: Tensor, count: int) -> Tensor:
    """Return the places of the numbers of largest magnitude in their order; of equal ones the first are taken.

    What is not a number counts as the largest, so that it is not hidden.
    """
    magnitudes = values.abs().nan_to_num_(nan=math.inf, posinf=math.inf)
    candidates = find_candidates(magnitudes, count)
    if candidates is not None:
        magnitudes = magnitudes[candidates]
    threshold = magnitudes.topk(count, sorted=False).values.min()
    above = torch.nonzero(magnitudes > threshold).view(-1)
    equal = torch.nonzero(magnitudes == threshold).view(-1)[: count - len(above)]
    places = torch.cat([above, equal]).sort().values
    return places if candidates is None else candidates[places]


def find_candidates(magnitudes: Tensor, count: int) -> Tensor | None:
    """Return the places of all numbers above a threshold that `count` of them exceed, or None where it is not found.

    The threshold is that of every n-th number: to sort all of 3 million takes 100 ms, to compare them 2 ms.
    """
    sample = magnitudes[:: max(1, len(magnitudes) // SAMPLE_NUMBERS)]
    sample_count = math.ceil(SAMPLE_MARGIN * count / len(magnitudes) * len(sample)) + 8
    if len(magnitudes) < 2 * SAMPLE_NUMBERS or sample_count >= len(sample):
        return None
    candidates = torch.nonzero(magnitudes >= sample.topk(sample_count, sorted=False).values.min()).view(-1)
    return candidates if len(candidates) >= count else None
