"""Worker's side of a parameter store: push gradients, and pull weights into the model."""

from collections.abc import Sequence
from functools import partial
from queue import Empty
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.parameter_store.part_buffer import MessageKind, PartBuffer, build_header
from equipoise.parameter_store.servers.receivers import BufferPool
from equipoise.parameter_store.servers.server import Server
from equipoise.parameter_store.servers.server_messages import PushedPart, WorkerRequest
from equipoise.parameter_store.store_channel import MESSAGE_TIMEOUT, MessageTag, StoreChannel


class PulledWeights(NamedTuple):
    """What came with weights that a worker has pulled."""

    ticket: int | None
    """ticket to compute next; None if the lap is over, or where the order gives none"""
    version: int
    """updates before these weights"""


class StoreLayout(NamedTuple):
    """Where the parts of a model are."""

    parameters: dict[str, nn.Parameter]
    """parameters of the model of this process, by key"""
    parts: list[list[str]]
    """keys of each server"""
    worker_ranks: list[int]
    """processes whose workers push and pull"""
    server_ranks: list[int]
    """processes with a server, the first of those with a worker"""


class StoreClient:
    """Client of one worker; its weights and gradients travel as one message a server."""

    def __init__(
        self,
        channel: StoreChannel,
        layout: StoreLayout,
        own_server: Server | None,
        is_asynchronous: bool,
    ) -> None:
        """Serve the model of this process.

        If the store is asynchronous, a pull without a push goes to the first server alone, which tells the others, and
        the next gradient may overwrite the last one before the own server has applied it.
        """
        server_ranks = layout.server_ranks
        self.channel, self.server_ranks, self.own_server = channel, server_ranks, own_server
        self.worker = layout.worker_ranks.index(channel.rank)
        self.own_rank = channel.rank
        self.parts = [[layout.parameters[key].detach() for key in part] for part in layout.parts]
        self.gradients = [PartBuffer(part) for part in self.parts]
        self.weights = [
            None if rank == channel.rank else PartBuffer(part)
            for rank, part in zip(server_ranks, self.parts, strict=True)
        ]
        self.asked_ranks = server_ranks[:1] if is_asynchronous else server_ranks
        self.own_pushes = (
            BufferPool(partial(PartBuffer, own_server.part.parameters)) if is_asynchronous and own_server else None
        )
        views = {
            key: view
            for part, buffer in zip(layout.parts, self.gradients, strict=True)
            for key, view in zip(part, buffer.views, strict=True)
        }
        self.gradient_views = [views[name] for name in layout.parameters]
        """gradient of each parameter in the memory that is sent, in the order of the model"""
        self.receives: list[dist.Work | None] = []  # of the weights that have been asked for, by server
        self.sends: list[dist.Work] = []
        self.sent_bytes = 0
        """bytes of gradients sent to other processes so far"""

    def push(self, ticket: int, gradients: Sequence[Tensor | None]) -> None:
        """Push the gradient of a ticket, given by parameter, and ask for weights; a missing one counts as zero."""
        fill_views(self.gradient_views, gradients)
        self._wait_for_sends()
        self._expect_weights()
        for rank, part in zip(self.server_ranks, self.gradients, strict=True):
            part.write_header(MessageKind.PUSH, ticket)
            if rank == self.own_rank:
                self._push_to_own_server(ticket, part)
            else:
                self.sends.append(self.channel.send(part.message, rank, MessageTag.TO_SERVER))
                self.sent_bytes += part.values.nbytes

    def pull(self) -> PulledWeights:
        """Wait for weights, and give them to the model; ask for them first if nothing has been pushed."""
        if not self.receives:
            self._expect_weights()
            self._send_request(MessageKind.PULL, self.asked_ranks)
        replies = [self._take_weights(index, work) for index, work in enumerate(self.receives)]
        self.receives = []
        if len({pulled.version for pulled in replies}) > 1:
            raise RuntimeError(f"servers sent weights of several versions: {replies}")
        self._wait_for_sends()
        return replies[0]

    def _push_to_own_server(self, ticket: int, part: PartBuffer) -> None:
        pushed = PushedPart(part, None)
        if self.own_pushes is not None:
            copied = self.own_pushes.take()
            copied.values.copy_(part.values)
            pushed = PushedPart(copied, self.own_pushes.free)
        self._own_inbox_put(WorkerRequest(self.worker, MessageKind.PUSH, ticket, pushed))

    def _expect_weights(self) -> None:
        """Start to receive, so that servers need not wait for this worker to be ready."""
        self.receives = [
            None if part is None else self.channel.receive(part.message, rank, MessageTag.TO_WORKER)
            for rank, part in zip(self.server_ranks, self.weights, strict=True)
        ]

    def _send_request(self, kind: MessageKind, ranks: Sequence[int]) -> None:
        for rank in ranks:
            if rank == self.own_rank:
                self._own_inbox_put(WorkerRequest(self.worker, kind))
            else:
                self.channel.send_last(build_header(kind), rank, MessageTag.TO_SERVER)

    def _own_inbox_put(self, request: WorkerRequest) -> None:
        assert self.own_server is not None  # noqa: S101 - its rank is that of this process
        self.own_server.inbox.put(request)

    def _take_weights(self, index: int, work: dist.Work | None) -> PulledWeights:
        """Copy the weights of one server into the model."""
        part = self.weights[index]
        if part is None or work is None:
            return self._take_own_weights(index)
        work.wait()
        if part.kind == MessageKind.FAILED:
            raise RuntimeError(
                f"the parameter server beside worker {self.server_ranks[index]} has failed; its process says why"
            )
        torch._foreach_copy_(self.parts[index], part.views)
        return PulledWeights(part.ticket, part.version)

    def _take_own_weights(self, index: int) -> PulledWeights:
        assert self.own_server is not None  # noqa: S101 - its rank is that of this process
        try:
            reply = self.own_server.outbox.local.get(timeout=MESSAGE_TIMEOUT.total_seconds())
        except Empty:
            raise TimeoutError(f"the parameter server did not answer within {MESSAGE_TIMEOUT}") from None
        if isinstance(reply, BaseException):
            raise RuntimeError(f"the parameter server has failed: {reply}") from reply
        torch._foreach_copy_(self.parts[index], reply.weights)
        return PulledWeights(reply.ticket, reply.version)

    def _wait_for_sends(self) -> None:
        for work in self.sends:
            work.wait()
        self.sends = []


@torch.no_grad()
def fill_views(views: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    """Copy gradients to where they are sent from, but those that are there already; a missing one becomes zero."""
    targets, sources = [], []
    for view, gradient in zip(views, gradients, strict=True):
        if gradient is None:
            view.zero_()
        elif gradient is not view:
            targets.append(view)
            sources.append(gradient)
    if targets:
        torch._foreach_copy_(targets, sources)
