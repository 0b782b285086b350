"""What a stage of a pipeline sends to its neighbours, and what it receives from them."""

from collections import deque
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.training.sharding.pipeline.stage_cut import StageBoundary
from equipoise.training.sharding.pipeline.tensor_layout import ROW_LENGTH, TensorLayout, flatten_dense


class SendingLink:
    """Sender of tensors to a neighbour. Messages leave in the background and arrive in order."""

    def __init__(self, target: int, group: dist.ProcessGroup) -> None:
        self.target, self.group = target, group
        self.pending: deque[tuple[int, dist.Work, Tensor]] = deque()
        self.sent_bytes = 0

    def send(self, micro: int, tensor: Tensor) -> None:
        """Start to send the memory of a dense tensor of a micro-batch, which must not change until it has arrived."""
        row = flatten_dense(tensor)
        self.pending.append((micro, start_sending(row, self.target, self.group), row))
        self.sent_bytes += tensor.nbytes

    def send_with_layout(self, micro: int, tensor: Tensor) -> None:
        """Start to send a tensor whose layout its receiver does not know."""
        layout = TensorLayout.read(tensor)
        self.send(micro, layout.to_row().to(tensor.device))
        self.send(micro, layout.arrange(tensor))

    def finish(self, last_micro: int | None = None) -> None:
        """Wait until the messages of the micro-batches up to the last one, or all, have arrived."""
        while self.pending and (last_micro is None or self.pending[0][0] <= last_micro):
            self.pending.popleft()[1].wait()


class ReceivingLink:
    """Receiver of tensors from a neighbour, in the order in which it sends them."""

    def __init__(self, source: int, group: dist.ProcessGroup, device: torch.device) -> None:
        self.source, self.group, self.device = source, group, device
        self.pending: deque[tuple[dist.Work, Tensor]] = deque()

    def expect(self, layout: TensorLayout) -> None:
        """Let the next tensor come while other work is done."""
        self._post(layout.allocate(self.device))

    def expect_layout(self) -> None:
        """Let the layout of the next tensor come."""
        self._post(torch.empty(ROW_LENGTH, dtype=torch.int64, device=self.device))

    def receive(self) -> Tensor:
        """Return the first of the tensors that are expected, once it is there."""
        work, tensor = self.pending.popleft()
        work.wait()
        return tensor

    def receive_with_layout(self) -> Tensor:
        """Return the next tensor, whose layout is expected."""
        self.expect(TensorLayout.from_row(self.receive().cpu()))
        return self.receive()

    def _post(self, tensor: Tensor) -> None:
        self.pending.append((start_receiving(flatten_dense(tensor), self.source, self.group), tensor))


def start_sending(tensor: Tensor, target: int, group: dist.ProcessGroup) -> dist.Work:
    """Start to send a tensor to another process of a group."""
    return dist.isend(tensor, target, group=group)  # type: ignore[return-value]  # None outside of the group


def start_receiving(tensor: Tensor, source: int, group: dist.ProcessGroup) -> dist.Work:
    """Start to receive a tensor from another process of a group."""
    return dist.irecv(tensor, source, group=group)  # type: ignore[return-value]  # None outside of the group


class UpstreamLinks(NamedTuple):
    """Links with the stage before: values come, their gradients go."""

    boundary: StageBoundary
    values: ReceivingLink
    gradients: SendingLink
    has_fixed_layout: bool
    """whether all values have the layout of the boundary; otherwise each one's comes before it"""
    generator_layout: TensorLayout
    """of the state of the generator, where it comes along"""

    def expect_value(self) -> None:
        """Let the next value come, and what comes with it."""
        if self.boundary.carries_generator:
            self.values.expect(self.generator_layout)
        if self.has_fixed_layout:
            self.values.expect(self.boundary.layout)
        else:
            self.values.expect_layout()

    def receive_value(self) -> tuple[Tensor, Tensor | None]:
        """Return the next value, of which gradients can be computed, and the generator's state after its layers."""
        state = self.values.receive().cpu() if self.boundary.carries_generator else None
        value = self.values.receive() if self.has_fixed_layout else self.values.receive_with_layout()
        return value.requires_grad_(self.boundary.needs_gradient), state

    def send_gradient(self, micro: int, value: Tensor) -> None:
        """Start to send the gradient of a value; zero where nothing depends on it."""
        gradient = torch.zeros_like(value) if value.grad is None else value.grad
        self.gradients.send(micro, TensorLayout.read(value).arrange(gradient))


class DownstreamLinks(NamedTuple):
    """Links with the stage after: values go, their gradients come."""

    boundary: StageBoundary
    values: SendingLink
    gradients: ReceivingLink
    has_fixed_layout: bool

    def send_value(self, micro: int, value: Tensor, state: Tensor) -> None:
        """Start to send a value, with the state of the generator after its layers where the next ones need it."""
        if self.boundary.carries_generator:
            self.values.send(micro, state.to(value.device))
        if self.has_fixed_layout:
            self.values.send(micro, self.boundary.layout.arrange(value.detach()))
        else:
            self.values.send_with_layout(micro, value.detach())

    def expect_gradient(self, value: Tensor) -> None:
        """Let the gradient of a value that was sent come."""
        self.gradients.expect(self.boundary.layout if self.has_fixed_layout else TensorLayout.read(value))
