"""What a server sends to workers: weights, or the word that it has failed."""

from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

import torch
import torch.distributed as dist
from safetensors.torch import save
from torch import Tensor

from equipoise.parameter_store.order import Reply
from equipoise.parameter_store.part_buffer import MessageKind, PartBuffer, build_header
from equipoise.parameter_store.servers.server_part import ServerPart
from equipoise.parameter_store.store_channel import MessageTag, StoreChannel

FAILED_STATE = -1  # in place of the number of bytes


class LocalReply(NamedTuple):
    """Weights for the worker in the server's own process."""

    ticket: int | None
    version: int
    weights: list[Tensor]


LocalReplies = SimpleQueue[LocalReply | BaseException]


class ReplyOutbox:
    """Replies of one server to all workers.

    With `copies`, each worker's weights are copied before they are sent, so that updates need not wait for a slow
    worker to receive them; without, no update may come before they are received.
    """

    def __init__(self, channel: StoreChannel, part: ServerPart, worker_ranks: list[int], copies: bool) -> None:
        self.channel, self.part, self.worker_ranks, self.copies = channel, part, worker_ranks, copies
        self.local: LocalReplies = SimpleQueue()
        self.copied: dict[int, PartBuffer] = {}  # by worker
        self.pending: dict[int, dist.Work] = {}
        self.sent_bytes = 0
        """bytes of weights sent to other processes so far"""

    def send_weights(self, reply: Reply) -> None:
        """Send the weights of now to a worker."""
        message = self._copy_weights(reply.worker) if self.copies else self.part.weights
        message.write_header(MessageKind.WEIGHTS, reply.ticket, reply.version)
        rank = self.worker_ranks[reply.worker]
        if rank == self.channel.rank:
            self.local.put(LocalReply(reply.ticket, reply.version, message.views))
            return
        self.pending[reply.worker] = self.channel.send(message.message, rank, MessageTag.TO_WORKER)
        self.sent_bytes += message.values.nbytes

    def wait_before_update(self) -> None:
        """Wait until weights that an update would change are sent."""
        if not self.copies:
            for work in self.pending.values():
                work.wait()
            self.pending.clear()

    def send_state(self, rank: int, has_failed: bool) -> None:
        """Send the state of the optimizer to another process, or that there is none because the server has failed."""
        payload = None
        try:
            payload = None if has_failed else encode_state(self.part.optimizer.state_dict())
        finally:
            size = torch.tensor([FAILED_STATE if payload is None else len(payload)])
            tensors = [size] if payload is None else [size, payload]
            for work in [self.channel.send(tensor, rank, MessageTag.STATE) for tensor in tensors]:
                work.wait()

    def fail(self, error: BaseException) -> None:
        """Tell all workers that they wait in vain; some may be gone."""
        self.local.put(error)
        message = build_header(MessageKind.FAILED)
        for rank in self.worker_ranks:
            if rank != self.channel.rank:
                with suppress(RuntimeError):
                    self.channel.send_last(message, rank, MessageTag.TO_WORKER)

    def _copy_weights(self, worker: int) -> PartBuffer:
        if worker not in self.copied:
            self.copied[worker] = PartBuffer(list(self.part.parameters))
        elif worker in self.pending:
            self.pending.pop(worker).wait()  # received long ago, as the worker has pulled again
        self.copied[worker].values.copy_(self.part.weights.values)
        return self.copied[worker]


def encode_state(state: dict[str, Tensor]) -> Tensor:
    """Encode named tensors as a message."""
    data = save({name: value.contiguous() for name, value in state.items()})
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def resolve_state(request: "Future[dict[str, Tensor]]", part: ServerPart, error: BaseException | None) -> None:
    """Answer a request of the own process for the state of the optimizer."""
    if error is not None:
        request.set_exception(error)
    else:
        request.set_result(part.optimizer.state_dict())
