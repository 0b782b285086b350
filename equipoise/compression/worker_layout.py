"""Which process computes for which of the configured workers, and the exchange of bytes between processes.

A worker of the configuration is no process: m processes share n workers as evenly as possible, those of a process in a
row. What the workers send each other does not depend on m; within a process it is only copied.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from equipoise.parallel.peer_messages import exchange_with_peers
from equipoise.parallel.schedule import split_evenly

ExchangeChunks = Callable[[Sequence[Tensor], Sequence[int]], list[Tensor]]
"""function of bytes for each process and the sizes of what comes from each, that returns what comes"""


@dataclass(frozen=True)
class WorkerLayout:
    """Configured workers, and the processes that compute for them."""

    workers: int
    """configured workers"""
    rank: int = 0
    """this process"""
    processes: int = 1
    """processes that share the workers"""

    def workers_of(self, rank: int) -> range:
        """Return the workers that a process computes for."""
        bounds = split_evenly(0, self.workers, self.processes)
        return range(bounds[rank], bounds[rank + 1])

    @property
    def hosted(self) -> range:
        """Workers that this process computes for."""
        return self.workers_of(self.rank)

    @property
    def hosted_counts(self) -> list[int]:
        """Number of workers that each process computes for."""
        return [len(self.workers_of(rank)) for rank in range(self.processes)]


def exchange_chunks(chunks: Sequence[Tensor], received_sizes: Sequence[int]) -> list[Tensor]:
    """Send a tensor of bytes to each process, and return what comes from each; all processes call this.

    What this process has for itself is returned as it is.
    """
    if len(chunks) == 1:
        return list(chunks)
    rank = dist.get_rank()
    received = [chunks[0].new_empty(size) for size in received_sizes]
    received[rank] = chunks[rank]
    exchange_with_peers(chunks, received)
    return received
