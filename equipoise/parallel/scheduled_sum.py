"""Run a schedule on a tensor by sending and receiving over torch.distributed.

What travels are views of the tensor itself; what has to be added waits in a buffer that all sums of a run share.
Numbers of 16 bits travel as such and are added as fp32, rounded once per round: once by `direct`, `root` and
`sharded-root`, log2 p times by the algorithms of doubling, p - 1 times around a ring.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.parallel.background import PendingSum, start_sum
from equipoise.parallel.schedule import Round, Schedule, count_scratch_elements, count_sent_elements

WIDE_SUM_DTYPES = torch.bfloat16, torch.float16


class ReadyRound(NamedTuple):
    """Round with its messages as views of tensors."""

    operations: list[dist.P2POp]
    own: Tensor | None
    """part that `lower` and `higher` are added to"""
    lower: list[Tensor]
    """what workers of lower ranks send, in their order"""
    higher: list[Tensor]


class ScheduledSum:
    """Sum of a flat tensor over all workers, as often as it is started; the tensor holds the sum then."""

    def __init__(self, schedule: Schedule, tensor: Tensor, rank: int, scratch: Tensor | None = None) -> None:
        """Prepare all views; `scratch` are bytes for `scratch_bytes`, shared with sums that never run at once."""
        if scratch is None:
            scratch = tensor.new_empty(scratch_bytes(schedule, tensor), dtype=torch.uint8)
        self.device = tensor.device
        self.sent_bytes = count_sent_elements(schedule) * tensor.element_size()
        """bytes that leave this worker"""
        self.num_rounds = len(schedule)
        waiting = scratch[: scratch_bytes(schedule, tensor)].view(tensor.dtype)
        self.rounds = [
            ready
            for part in schedule
            if (ready := prepare_round(part, tensor, rank, waiting)).operations  # no bytes, or nothing to do here
        ]

    def start(self) -> PendingSum:
        """Start the sum; sums run one after the other, so all workers must start the same ones in the same order."""
        return start_sum(self.run, self.device)

    def run(self) -> None:
        """Sum the tensor; return when it is done, or queued on the current stream of a GPU."""
        for part in self.rounds:
            for work in dist.batch_isend_irecv(part.operations):
                work.wait()
            if part.own is not None:
                add_in_rank_order(part.own, part.lower, part.higher)


def scratch_bytes(schedule: Schedule, tensor: Tensor) -> int:
    """Return the bytes that wait to be added while `schedule` sums `tensor`."""
    return count_scratch_elements(schedule) * tensor.element_size()


def prepare_round(part: Round, tensor: Tensor, rank: int, waiting: Tensor) -> ReadyRound:
    """Make the views and operations of a round; messages without elements are not sent."""
    # receives first: a sender waits until the receiver is ready
    operations, own, arrived, used = [], None, {}, 0
    for peer, start, stop in part.receives:
        if stop > start:
            target = tensor[start:stop]
            if part.adds:
                own, target = target, waiting[used : used + stop - start]
                arrived[peer] = target
                used += stop - start
            operations.append(dist.P2POp(dist.irecv, target, peer))
    for peer, start, stop in part.sends:
        if stop > start:
            operations.append(dist.P2POp(dist.isend, tensor[start:stop], peer))
    lower = [arrived[peer] for peer in sorted(arrived) if peer < rank]
    return ReadyRound(operations, own, lower, [arrived[peer] for peer in sorted(arrived) if peer > rank])


def add_in_rank_order(own: Tensor, lower: Sequence[Tensor], higher: Sequence[Tensor]) -> None:
    """Add what other workers sent to the own part in the order of ranks, so that all workers get the same bits."""
    if own.dtype in WIDE_SUM_DTYPES:
        addends = [*lower, own, *higher]
        total = addends[0].float()
        for addend in addends[1:]:
            total += addend
        own.copy_(total)
        return
    if lower:
        for addend in lower[1:]:
            lower[0].add_(addend)
        own.add_(lower[0])  # a + b has the bits of b + a
    for addend in higher:
        own.add_(addend)
