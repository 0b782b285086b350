"""Sum of tensors that travel as blocks of bf16 or int8.

Each process sums a part: all workers send it theirs by one all-to-all, it adds them in the order of workers in the
dtype of the tensor, encodes the sum and sends it to all. It keeps what this second encoding leaves out, as workers do.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from equipoise.compression.block_encoders import BlockEncoder
from equipoise.compression.kept_errors import (
    load_part_error,
    load_worker_error,
    part_error_name,
    worker_error_name,
)
from equipoise.compression.worker_layout import ExchangeChunks, WorkerLayout
from equipoise.parallel.schedule import split_evenly
from equipoise.planning.exchanges.compression_cost import BLOCK_NUMBERS, count_blocks


class QuantizedSum:
    """Sum over workers of flat tensors with the shape and dtype of `like`."""

    num_rounds = 2

    def __init__(self, layout: WorkerLayout, like: Tensor, encoder: BlockEncoder, error_feedback: bool = True) -> None:
        self.layout, self.encoder, self.error_feedback = layout, encoder, error_feedback
        self.count, blocks = len(like), count_blocks(len(like))
        bounds = split_evenly(0, blocks, layout.processes)
        self.parts = [slice(bounds[rank], bounds[rank + 1]) for rank in range(layout.processes)]
        """blocks that each process sums"""
        self.first_number = bounds[layout.rank] * BLOCK_NUMBERS  # of those that this process sums
        shape = blocks, BLOCK_NUMBERS
        # to these a tensor is added before it is encoded; what is left out stays in them
        self.inputs = [like.new_zeros(shape) for _ in (layout.hosted if error_feedback else range(1))]
        self.rows = [
            torch.zeros(blocks, encoder.block_bytes, dtype=torch.uint8, device=like.device) for _ in layout.hosted
        ]
        self.part_sum = like.new_zeros(self._part_size(layout.rank), BLOCK_NUMBERS)
        self.part_rows = self.rows[0].new_zeros(len(self.part_sum), encoder.block_bytes)
        self.scratch, self.decoded = like.new_zeros(shape), like.new_zeros(shape)
        self.total = self.decoded.view(-1)[: self.count]

    def encode_worker(self, index: int, values: Tensor) -> None:
        """Encode what a hosted worker adds, counted from 0 in this process."""
        if not self.error_feedback:
            self.inputs[0].view(-1)[: self.count] = values
            self.encoder.encode(self.inputs[0], self.rows[index], self.scratch)
            return
        blocks = self.inputs[index]
        blocks.view(-1)[: self.count] += values
        self.encoder.encode(blocks, self.rows[index], self.scratch)
        self.encoder.decode(self.rows[index], self.scratch)
        blocks -= self.scratch

    def sum_over_workers(self, exchange: ExchangeChunks) -> Tensor:
        """Sum what all workers have encoded to `total`, with the same bits on all; all processes call this."""
        own, size = self.parts[self.layout.rank], self.encoder.block_bytes
        if not self.error_feedback:
            self.part_sum.zero_()
        scratch = self.scratch[: len(self.part_sum)]
        for rows in self._exchange_parts(exchange):
            self.encoder.decode(rows, scratch)
            self.part_sum += scratch
        self.encoder.encode(self.part_sum, self.part_rows, scratch)
        sizes = [self._part_size(rank) * size for rank in range(self.layout.processes)]
        gathered = exchange([self.part_rows.view(-1)] * self.layout.processes, sizes)
        for part, chunk in zip(self.parts, gathered, strict=True):
            self.encoder.decode(chunk.view(-1, size), self.decoded[part])
        self.part_sum -= self.decoded[own]
        return self.total

    def _exchange_parts(self, exchange: ExchangeChunks) -> list[Tensor]:
        """Return what all workers have encoded of this process's part, in their order."""
        if self.layout.processes == 1:
            return self.rows
        part_bytes = self.part_rows.numel()
        received = exchange(
            [torch.cat([rows[part] for rows in self.rows]).view(-1) for part in self.parts],
            [part_bytes * count for count in self.layout.hosted_counts],
        )
        return [
            rows.view(-1, self.encoder.block_bytes)
            for chunk in received
            for rows in (chunk.split(part_bytes) if part_bytes else ())  # more processes than blocks
        ]

    def _part_size(self, rank: int) -> int:
        return self.parts[rank].stop - self.parts[rank].start

    def list_errors(self) -> dict[str, Tensor]:
        """Return what each hosted worker has left out, and what the encoding of this process's part of the sum has."""
        if not self.error_feedback:
            return {}
        part = {part_error_name(self.first_number): self._own_part} if len(self.part_sum) else {}
        return part | dict(zip(map(worker_error_name, self.layout.hosted), self._worker_errors, strict=True))

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` of these workers returned, whichever processes computed for them."""
        if not self.error_feedback:
            return
        for worker, error in zip(self.layout.hosted, self._worker_errors, strict=True):
            load_worker_error(tensors, worker, error)
        load_part_error(tensors, self.first_number, self._own_part)

    @property
    def _worker_errors(self) -> list[Tensor]:
        return [blocks.view(-1)[: self.count] for blocks in self.inputs]

    @property
    def _own_part(self) -> Tensor:
        """What was left out of this process's part of the sum, without the numbers that fill its last block."""
        return self.part_sum.view(-1)[: max(0, self.count - self.first_number)]

    def count_sent_bytes(self) -> int:
        """Return the bytes that leave this process in a sum."""
        own, blocks = len(self.part_sum), len(self.scratch)
        sent = len(self.layout.hosted) * (blocks - own) + (self.layout.processes - 1) * own
        return sent * self.encoder.block_bytes
