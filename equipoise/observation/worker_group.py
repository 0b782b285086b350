"""Group of the workers that observe together: each gets what the others have measured.

It is a process group of its own, so that a worker that takes part in too few exchanges disturbs no exchange of the
training itself.
"""

import warnings
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

GATHER_SECONDS = 60.0  # limit for the other workers to end the same lap
ALONE_WARNING = (
    "equipoise.observe: the other workers did not end the same lap within a minute, so the figures are this worker's"
    " alone from here on; call observe, report and close on every worker"
)


class WorkerGroup:
    """Workers that train the observed model: the ranks of `torch.distributed`'s process group, or one without it."""

    def __init__(self, gather_seconds: float = GATHER_SECONDS) -> None:
        has_group = dist.is_available() and dist.is_initialized()
        self.rank, self.size = (dist.get_rank(), dist.get_world_size()) if has_group else (0, 1)
        self.gather_limit = timedelta(seconds=gather_seconds)
        self.group: Any = dist.new_group(backend="gloo") if self.size > 1 else None

    def gather_rows(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of all workers by rank; the own row alone where the others do not answer in time."""
        if self.group is None:
            return [list(row)]
        own = torch.tensor(row, dtype=torch.float64)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        try:
            work = dist.all_gather(rows, own, group=self.group, async_op=True)
            work.wait(self.gather_limit)
        except RuntimeError:
            warnings.warn(ALONE_WARNING, RuntimeWarning, stacklevel=2)
            self.leave()
            return [list(row)]
        return [values.tolist() for values in rows]

    def gather_bytes(self, own: bytes) -> list[bytes]:
        """Return the bytes of all workers by rank; the own ones alone where the others do not answer in time."""
        lengths = [int(length) for (length,) in self.gather_rows([len(own)])]
        # numbers are what workers exchange: each byte is one
        rows = self.gather_rows([*own, *([0] * (max(lengths) - len(own)))])
        if len(rows) < len(lengths):
            return [own]
        return [bytes(map(int, row[:length])) for row, length in zip(rows, lengths, strict=True)]

    def leave(self) -> None:
        """Exchange nothing from now on."""
        self.group = None
