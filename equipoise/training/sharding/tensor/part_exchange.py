"""What the workers of a replica exchange while they compute parts of the same layers: activations, not gradients.

Each exchange has a twin in the backward pass. Where all parts read the same input, the forward pass sends nothing and
the backward pass sums its gradient; where their outputs are added, it is the other way around (f and g of Megatron-LM).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.parallel.peer_messages import exchange_with_peers
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.training.gradient_sync import SumTraffic
from equipoise.training.step_timer import SpanTimer

CHANNEL_DIM = -3  # of images, alone or in a batch


class PartExchange:
    """Exchange of activations among the workers that hold the parts of one replica."""

    def __init__(self, group: dist.ProcessGroup, part: int, num_parts: int) -> None:
        self.group, self.part, self.num_parts = group, part, num_parts
        self.timer: SpanTimer | None = None
        """timer of the training steps, which gets the waits for other workers as spans named `exchange`"""
        self.sent_bytes, self.rounds = 0, 0
        """what this worker has sent in training steps, and messages that waited for each other"""

    def leave_uncompiled(self) -> None:
        """Keep torch.compile from tracing the exchanges: a model is compiled between them."""
        for function in (self.share_input, self.sum_outputs, self.gather_channels):
            setattr(self, function.__name__, torch.compiler.disable(function))

    def share_input(self, x: Tensor) -> Tensor:
        """Return an input that all parts read, whose gradient is the sum of what they give it."""
        return SharedInput.apply(x, self)  # type: ignore[no-any-return]  # autograd functions are not annotated

    def sum_outputs(self, x: Tensor) -> Tensor:
        """Return the sum of the outputs of all parts, in place of this worker's."""
        if torch.is_grad_enabled():
            return SummedOutput.apply(x, self)  # type: ignore[no-any-return]
        dist.all_reduce(x, group=self.group)
        return x

    def gather_channels(self, x: Tensor) -> Tensor:
        """Return the channels of the outputs of all parts, in their order."""
        if torch.is_grad_enabled():
            return GatheredChannels.apply(x, self)  # type: ignore[no-any-return]
        return self._join_channels(x)

    def pop_traffic(self) -> SumTraffic:
        """Return what this worker has sent in training steps since the last call."""
        traffic = SumTraffic(self.sent_bytes, self.rounds)
        self.sent_bytes = self.rounds = 0
        return traffic

    def sum_in_step(self, x: Tensor) -> Tensor:
        """Sum a tensor over the parts in place, as a part of a training step."""
        mark = self.timer.mark() if self.timer else 0.0
        dist.all_reduce(x, group=self.group)
        cost = all_reduce_cost("ring", self.num_parts, x.nbytes)
        self._record(mark, round(cost.max_sent_bytes), cost.rounds)
        return x

    def gather_in_step(self, x: Tensor) -> Tensor:
        """Return the channels of all parts, as a part of a training step."""
        mark = self.timer.mark() if self.timer else 0.0
        whole = self._join_channels(x)
        self._record(mark, (self.num_parts - 1) * x.nbytes, 1)
        return whole

    def _join_channels(self, x: Tensor) -> Tensor:
        dim = CHANNEL_DIM if x.is_contiguous() else -1  # a message is dense: channels may be last in memory
        own = x.movedim(CHANNEL_DIM, dim).contiguous()
        by_part = [own if part == self.part else torch.empty_like(own) for part in range(self.num_parts)]
        exchange_with_peers([own] * self.num_parts, by_part, self.group)
        return torch.cat(by_part, dim).movedim(dim, CHANNEL_DIM)

    def _record(self, mark: Any, sent_bytes: int, rounds: int) -> None:
        self.sent_bytes += sent_bytes
        self.rounds += rounds
        if self.timer:
            self.timer.record_inner_span("exchange", "compute", mark)


class SharedInput(torch.autograd.Function):
    """Input that all parts read: itself, and in the backward pass the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: PartExchange) -> Tensor:
        """Return the input as it is."""
        ctx.exchange = exchange
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the sum of the gradients of all parts."""
        copy = gradients[0].clone(memory_format=torch.contiguous_format)  # others may read the gradient of this part
        return ctx.exchange.sum_in_step(copy), None


class SummedOutput(torch.autograd.Function):
    """Sum of the outputs of all parts; in the backward pass all of them get its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: PartExchange) -> Tensor:
        """Sum the output over the parts in place."""
        ctx.mark_dirty(x)
        return exchange.sum_in_step(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the sum."""
        return gradients[0], None


class GatheredChannels(torch.autograd.Function):
    """Channels of all parts; in the backward pass each part gets the gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, exchange: PartExchange) -> Tensor:
        """Gather the channels of all parts."""
        ctx.first, ctx.channels = exchange.part * x.shape[CHANNEL_DIM], x.shape[CHANNEL_DIM]
        return exchange.gather_in_step(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of this worker's channels."""
        return gradients[0].narrow(CHANNEL_DIM, ctx.first, ctx.channels), None
