"""Which workers share a node."""

import hashlib
import os
import socket
from collections.abc import Sequence
from itertools import groupby

import torch
import torch.distributed as dist

NODE_RANK_VARIABLES = "NODE_RANK", "GROUP_RANK"  # of Ray Train and of torchrun


def gather_group_size(device: torch.device) -> int | None:
    """Return the number of workers on each node; None if nodes differ in it. All workers call this."""
    return find_group_size(gather_nodes(device))


def gather_nodes(device: torch.device) -> list[int]:
    """Return a number for the node of each worker, equal for workers on one node. All workers call this."""
    identity = " ".join([socket.gethostname(), *(os.environ.get(name, "") for name in NODE_RANK_VARIABLES)])
    digest = int.from_bytes(hashlib.sha256(identity.encode()).digest()[:7])
    own = torch.tensor([digest], device=device)
    nodes = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(nodes, own)
    return [int(node) for node in nodes]


def find_group_size(nodes: Sequence[int]) -> int | None:
    """Return the number of ranks on each node, where those of a node follow each other; None where they do not."""
    runs = [(node, len(list(ranks))) for node, ranks in groupby(nodes)]
    sizes = {size for _, size in runs}
    return sizes.pop() if len(sizes) == 1 and len({node for node, _ in runs}) == len(runs) else None
