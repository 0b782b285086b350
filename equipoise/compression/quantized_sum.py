"""Sum of tensors that travel as blocks of bf16 or int8.

Each process sums a part: all workers send it theirs by one all-to-all, it adds them in the order of workers in the
dtype of the tensor, encodes the sum and sends it to all. It keeps what this second encoding leaves out, as workers do.
"""

import torch
from torch import Tensor

from equipoise.compression.block_encoders import BlockEncoder
from equipoise.compression.encoded_sum import KeptErrors
from equipoise.compression.worker_layout import ExchangeChunks, WorkerLayout
from equipoise.parallel.schedule import split_evenly
from equipoise.planning.exchanges.compression_cost import BLOCK_NUMBERS, count_blocks


class QuantizedSum:
    """Sum over workers of flat tensors with the shape and dtype of `like`."""

    num_rounds = 2

    def __init__(self, layout: WorkerLayout, like: Tensor, encoder: BlockEncoder, error_feedback: bool = True) -> None:
        self.layout, self.encoder, self.count = layout, encoder, len(like)
        self.blocks = count_blocks(self.count)
        self.bounds = split_evenly(0, self.blocks, layout.processes)
        self.errors = KeptErrors(layout, like, error_feedback)
        self.padded = like.new_zeros(self.blocks, BLOCK_NUMBERS)
        self.rows = [
            torch.zeros(self.blocks, encoder.block_bytes, dtype=torch.uint8, device=like.device) for _ in layout.hosted
        ]
        part = self.part_of(layout.rank)
        self.part_error = like.new_zeros(part.stop - part.start, BLOCK_NUMBERS) if error_feedback else None

    def part_of(self, rank: int) -> slice:
        """Return the blocks that a process sums."""
        return slice(self.bounds[rank], self.bounds[rank + 1])

    def encode_worker(self, index: int, values: Tensor) -> None:
        """Encode what a hosted worker adds, counted from 0 in this process; `values` are overwritten."""
        self.errors.add_to(index, values)
        self.padded.view(-1)[: self.count] = values
        self.rows[index] = self.encoder.encode(self.padded)
        if self.errors.errors:
            decoded = self.encoder.decode(self.rows[index], values.dtype).view(-1)[: self.count]
            torch.sub(values, decoded, out=self.errors.errors[index])

    def sum_over_workers(self, exchange: ExchangeChunks) -> Tensor:
        """Return the sum of what all workers have encoded, with the same bits on all; all processes call this."""
        layout, size = self.layout, self.encoder.block_bytes
        own = self.part_of(layout.rank)
        part_bytes = (own.stop - own.start) * size
        chunks = [torch.cat([rows[self.part_of(rank)] for rows in self.rows]) for rank in range(layout.processes)]
        received = exchange(
            [chunk.view(-1) for chunk in chunks], [part_bytes * count for count in layout.hosted_counts]
        )
        encoded = self.encoder.encode(self._sum_part([chunk.view(-1, size) for chunk in received])).view(-1)
        gathered = exchange(
            [encoded] * layout.processes,
            [(self.bounds[rank + 1] - self.bounds[rank]) * size for rank in range(layout.processes)],
        )
        decoded = self.encoder.decode(torch.cat([chunk.view(-1, size) for chunk in gathered]), self.padded.dtype)
        if self.part_error is not None:
            self.part_error -= decoded[own]
        return decoded.view(-1)[: self.count]

    def _sum_part(self, received: list[Tensor]) -> Tensor:
        """Return the sum of this process's part with what its last encoding left out, which `part_error` holds then."""
        total: Tensor | None = None
        for chunk, count in zip(received, self.layout.hosted_counts, strict=True):
            for rows in chunk.chunk(count) if len(chunk) else ():
                addend = self.encoder.decode(rows, self.padded.dtype)
                total = addend if total is None else total.add_(addend)
        total = self.padded[:0] if total is None else total  # more processes than blocks
        return total if self.part_error is None else self.part_error.add_(total)

    def pop_error(self) -> Tensor:
        """Return this process's part of what was left out; summed over processes it is all of it."""
        error = torch.zeros_like(self.padded)
        if self.part_error is not None:
            error[self.part_of(self.layout.rank)] = self.part_error
        flat = error.view(-1)[: self.count]
        return flat + self.errors.sum_hosted(flat)

    def load_error(self, error: Tensor) -> None:
        """Share what was left out equally among the workers, in place of what they keep."""
        self.errors.share(error)
        if self.part_error is not None:
            self.part_error.zero_()

    def count_sent_bytes(self) -> int:
        """Return the bytes that leave this process in a sum."""
        own = self.bounds[self.layout.rank + 1] - self.bounds[self.layout.rank]
        blocks = len(self.layout.hosted) * (self.blocks - own) + (self.layout.processes - 1) * own
        return blocks * self.encoder.block_bytes
