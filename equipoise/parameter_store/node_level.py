"""Workers of a node sum their gradients first; its first worker pushes and pulls for all, and hands the weights on.

So one gradient and one set of weights a node cross the links between nodes, however many workers it has.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.parameter_store.part_buffer import PartBuffer
from equipoise.parameter_store.store_channel import MessageTag, StoreChannel
from equipoise.parameter_store.store_client import StoreClient, fill_views


class WorkerExchange(Protocol):
    """What a worker does with its gradients and weights in a step."""

    gradient_views: list[Tensor]
    """where the gradient of each parameter may be put, so that it need not be copied"""

    def push(self, ticket: int, gradients: Sequence[Tensor | None]) -> None:
        """Push the gradient of a ticket, given by parameter."""

    def pull(self) -> object:
        """Wait for weights, and give them to the model."""


class FirstOfNode:
    """First worker of a node with others."""

    def __init__(
        self,
        client: StoreClient,
        channel: StoreChannel,
        parameters: Sequence[nn.Parameter],
        other_ranks: Sequence[int],
    ) -> None:
        """Push and pull for the workers of `other_ranks` too, which are in the order of ranks."""
        self.client, self.channel, self.parameters, self.other_ranks = client, channel, parameters, other_ranks
        self.gradient_views = client.gradient_views
        self.received = [PartBuffer(parameters) for _ in other_ranks]
        self.weights = PartBuffer(parameters)
        self.receives: list[dist.Work] = []
        self.sends: list[dist.Work] = []

    def push(self, ticket: int, gradients: Sequence[Tensor | None]) -> None:
        """Push the sum of the node's gradients, added in the order of ranks."""
        self._expect_gradients()
        fill_views(self.gradient_views, gradients)
        for work, buffer in zip(self.receives, self.received, strict=True):
            work.wait()
            torch._foreach_add_(self.gradient_views, buffer.views)
        self.receives = []
        self.client.push(ticket, self.gradient_views)

    def pull(self) -> None:
        """Pull weights, and send them to the other workers."""
        self.client.pull()
        for work in self.sends:
            work.wait()
        self.weights.copy_from(self.parameters)
        self._expect_gradients()  # of the next step, before workers can send them
        self.sends = [
            self.channel.send(self.weights.message, rank, MessageTag.FROM_FIRST_OF_NODE) for rank in self.other_ranks
        ]

    def _expect_gradients(self) -> None:
        if not self.receives:
            self.receives = [
                self.channel.receive(buffer.message, rank, MessageTag.TO_FIRST_OF_NODE)
                for rank, buffer in zip(self.other_ranks, self.received, strict=True)
            ]


class OtherOfNode:
    """Worker of a node whose first worker pushes and pulls for it."""

    def __init__(self, channel: StoreChannel, parameters: Sequence[nn.Parameter], first_rank: int) -> None:
        self.channel, self.first_rank = channel, first_rank
        self.parameters = [parameter.detach() for parameter in parameters]
        self.gradients, self.weights = PartBuffer(parameters), PartBuffer(parameters)
        self.gradient_views = self.gradients.views
        self.receive: dist.Work | None = None
        self.send: dist.Work | None = None

    def push(self, ticket: int, gradients: Sequence[Tensor | None]) -> None:
        """Send the gradient to the first worker of the node."""
        fill_views(self.gradient_views, gradients)
        self.receive = self.channel.receive(self.weights.message, self.first_rank, MessageTag.FROM_FIRST_OF_NODE)
        self.send = self.channel.send(self.gradients.message, self.first_rank, MessageTag.TO_FIRST_OF_NODE)

    def pull(self) -> None:
        """Wait for the weights that the first worker hands on, and give them to the model."""
        if self.receive is None or self.send is None:
            raise RuntimeError("a worker pulls before it has pushed: nothing has been asked for")
        self.receive.wait()
        self.send.wait()
        self.receive = self.send = None
        torch._foreach_copy_(self.parameters, self.weights.views)
