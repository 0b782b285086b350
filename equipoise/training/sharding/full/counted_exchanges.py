"""Exchanges of `fully_shard` that count what they send.

With m bytes on p workers, each gather and each sum of gradients sends (p - 1)/p m bytes from each worker. On a CPU
workers send to all others at once: gloo's reduce_scatter sends twice as much, and its gather waits for late workers.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

# the only names that torch has no public module for
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from equipoise.parallel.peer_messages import exchange_with_peers
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.training.gradient_sync import SumTraffic
from equipoise.training.sharding.full.exchange_log import ExchangeLog

# newer versions of torch warn of the older names
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def count_exchanges(unit: FSDPModule, log: ExchangeLog, num_replicas: int) -> None:
    """Let a unit exchange through objects that count."""
    unit.set_custom_all_gather(CountedAllGather(log))
    unit.set_custom_reduce_scatter(CountedReduceScatter(log))
    if num_replicas > 1:
        unit.set_all_reduce_hook(build_all_reduce_hook(log, num_replicas))


class CountedAllGather(AllGather):
    """Gather of the parts of a unit's weights."""

    def __init__(self, log: ExchangeLog) -> None:
        self.log = log

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory for the parts of all workers."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """Gather the parts: on a GPU as torch does, in a ring."""
        self.log.begin_exchange()
        others, work = group.size() - 1, None
        is_direct = input_tensor.device.type == "cpu" and not async_op
        if is_direct:
            gather_parts(output_tensor, input_tensor, group)
        else:
            work = all_gather(output_tensor, input_tensor, group, async_op)
        self.log.end_exchange(SumTraffic(others * input_tensor.nbytes, 1 if is_direct else others))
        return work


class CountedReduceScatter(ReduceScatter):
    """Sum of the gradients of a unit, of which each worker receives its part."""

    def __init__(self, log: ExchangeLog) -> None:
        self.log = log

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return memory for gradients."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp | dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Sum the gradients, and take the norm of this worker's own, which exists nowhere else."""
        if self.log.gradient_norms:
            self.log.gradient_norms.local_norms.append(torch.dot(input_tensor, input_tensor))
        self.log.begin_exchange()
        others, work = group.size() - 1, None
        is_direct = input_tensor.device.type == "cpu"
        if is_direct:
            sum_parts(output_tensor, input_tensor, group)
        else:
            work = reduce_scatter(output_tensor, input_tensor, op, group, async_op)
        self.log.end_exchange(SumTraffic(others * output_tensor.nbytes, 1 if is_direct else others))
        return work


def sum_parts(output: Tensor, gradients: Tensor, group: dist.ProcessGroup) -> None:
    """Send each worker of a group its part of the gradients, and sum the parts received in the order of ranks."""
    received = torch.empty_like(gradients).view(group.size(), -1)
    parts = gradients.view(group.size(), -1)
    received[group.rank()] = parts[group.rank()]
    exchange_with_peers([*parts], [*received], group)
    torch.sum(received, 0, out=output)


def gather_parts(output: Tensor, own_part: Tensor, group: dist.ProcessGroup) -> None:
    """Send the part of this worker to all others of a group, and receive theirs; the output has all of them."""
    parts = output.view(group.size(), -1)
    if parts[group.rank()].data_ptr() != own_part.data_ptr():
        parts[group.rank()] = own_part.view(-1)
    exchange_with_peers([own_part] * group.size(), [*parts], group)


def build_all_reduce_hook(log: ExchangeLog, num_replicas: int) -> Callable[[Tensor], None]:
    """Return a function that counts the sum over replicas of a part, when torch has made it after that of the part."""

    def count_all_reduce(total: Tensor) -> None:
        cost = all_reduce_cost("ring", num_replicas, total.nbytes)
        log.end_exchange(SumTraffic(round(cost.max_sent_bytes), cost.rounds))

    return count_all_reduce
