"""Messages of parameter stores: sends and receives on a gloo group beside that of the run.

All stores of a process share the group, and each has tags of its own, so that a message never reaches another store.
"""

import weakref
from datetime import timedelta
from enum import IntEnum
from itertools import count

import torch.distributed as dist
from torch import Tensor

MESSAGE_TIMEOUT = timedelta(minutes=30)  # of an answer, as of a collective of torch.distributed by default
IDLE_TIMEOUT = timedelta(days=365)  # of the next request, which may take long; a worker that dies ends it at once


class MessageTag(IntEnum):
    """Way that a message takes."""

    TO_SERVER = 0
    TO_WORKER = 1
    BETWEEN_SERVERS = 2
    STATE = 3
    TO_FIRST_OF_NODE = 4
    FROM_FIRST_OF_NODE = 5


class StoreGroup:
    """Process group of all stores of a process."""

    def __init__(self) -> None:
        group = dist.new_group(backend="gloo", timeout=MESSAGE_TIMEOUT)
        assert isinstance(group, dist.ProcessGroup)  # noqa: S101 - all processes are in it
        self.group = group
        self.tags = count(step=len(MessageTag))
        self.last_sends: list[tuple[Tensor, dist.Work]] = []  # nobody waits for them, but their memory must stay


_groups: "weakref.WeakKeyDictionary[dist.ProcessGroup, StoreGroup]" = weakref.WeakKeyDictionary()


class StoreChannel:
    """Sends and receives of one store; all processes of the run open it at the same time."""

    def __init__(self) -> None:
        world = dist.group.WORLD
        if world is None:
            raise RuntimeError("a parameter store needs the process group of its workers")
        if world not in _groups:
            _groups[world] = StoreGroup()
        self.store_group = _groups[world]
        self.first_tag = next(self.store_group.tags)
        self.rank, self.processes = dist.get_rank(), dist.get_world_size()

    def send(self, tensor: Tensor, rank: int, tag: MessageTag) -> dist.Work:
        """Start to send a tensor, which may not change before that is done."""
        return self.store_group.group.send([tensor], rank, self.first_tag + tag)

    def send_last(self, tensor: Tensor, rank: int, tag: MessageTag) -> None:
        """Start to send a tensor that nobody waits for."""
        self.store_group.last_sends.append((tensor, self.send(tensor, rank, tag)))

    def receive(self, tensor: Tensor, rank: int, tag: MessageTag) -> dist.Work:
        """Start to receive a tensor of at most this size."""
        return self.store_group.group.recv([tensor], rank, self.first_tag + tag)
