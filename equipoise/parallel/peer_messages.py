"""Messages between all workers of a group at once, in which each worker is ready to receive before it sends.

gloo sends a message once its receiver has said that it is ready, on the connection that data travel on. A worker that
sends first is ready only when its own message has left, so the messages of two workers of which one comes late follow
each other: links that carry both directions take up to twice as long. So do gloo's own gathers and all-to-alls.
"""

from collections.abc import Sequence

import torch.distributed as dist
from torch import Tensor

from equipoise.parallel.schedule import list_next_peers

PeerMessage = tuple[Tensor, int]
"""tensor, and the rank in the group of the worker that sends or receives it"""


def exchange_with_peers(
    sent: Sequence[Tensor], received: Sequence[Tensor], group: dist.ProcessGroup | None = None
) -> None:
    """Send a tensor to each worker of a group, and receive one from each, both in the order of ranks; all call this.

    The tensors of this worker itself are left as they are, and those without elements do not travel.
    """
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    peers = list_next_peers(rank, size)
    receives = [(received[peer], peer) for peer in peers if received[peer].numel()]
    sends = [(sent[peer], peer) for peer in peers if sent[peer].numel()]
    is_on_gpu = any(tensor.is_cuda for tensor, _ in receives + sends)
    start = start_on_gpus if is_on_gpu else start_on_cpus
    for work in start(receives, sends, group):
        work.wait()


def start_on_cpus(
    receives: Sequence[PeerMessage], sends: Sequence[PeerMessage], group: dist.ProcessGroup | None
) -> list[dist.Work]:
    """Start messages one by one, which costs less than a batch."""
    works = [dist.irecv(tensor, group=group, group_src=peer) for tensor, peer in receives]
    works += [dist.isend(tensor, group=group, group_dst=peer) for tensor, peer in sends]
    return [work for work in works if work is not None]


def start_on_gpus(
    receives: Sequence[PeerMessage], sends: Sequence[PeerMessage], group: dist.ProcessGroup | None
) -> list[dist.Work]:
    """Start messages as one batch, as NCCL asks for."""
    operations = [dist.P2POp(dist.irecv, tensor, group=group, group_peer=peer) for tensor, peer in receives]
    operations += [dist.P2POp(dist.isend, tensor, group=group, group_peer=peer) for tensor, peer in sends]
    return list(dist.batch_isend_irecv(operations))
