"""Memory of one part of the weights or gradients: a header and all numbers in a row, so that a part is one message."""

from collections.abc import Iterable, Sequence
from enum import IntEnum

import torch
from torch import Tensor

HEADER_WORDS = 8
HEADER_BYTES = 8 * HEADER_WORDS


class MessageKind(IntEnum):
    """What a message is, in the first word of its header."""

    PULL = 1  # from a worker to servers; has a header alone, as the next two
    STATE = 2
    CLOSE = 3
    PUSH = 4
    WEIGHTS = 5  # from a server to a worker
    FAILED = 6
    EVENTS = 7  # between servers
    NORMS = 8


class PartBuffer:
    """Header and numbers of the same shapes as some parameters, in main memory."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        dtype = parameters[0].dtype
        num_bytes = sum(parameter.numel() for parameter in parameters) * dtype.itemsize
        pinned = any(parameter.is_cuda for parameter in parameters)  # for fast copies to and from a GPU
        self.message = torch.zeros(HEADER_BYTES + num_bytes, dtype=torch.uint8, pin_memory=pinned)
        self.header = self.message[:HEADER_BYTES].view(torch.int64)
        self.values = self.message[HEADER_BYTES:].view(dtype)
        pieces = self.values.split([parameter.numel() for parameter in parameters])
        # same memory layout as the parameter, because fused optimizers walk both in memory order
        self.views = [
            piece.as_strided(parameter.shape, parameter.stride())
            for piece, parameter in zip(pieces, parameters, strict=True)
        ]

    @property
    def kind(self) -> int:
        """Kind of the message, from its header."""
        return int(self.header[0])

    @property
    def ticket(self) -> int | None:
        """Ticket of the message, or None without one."""
        number = int(self.header[1])
        return None if number < 0 else number

    @property
    def version(self) -> int:
        """Updates before the weights of the message."""
        return int(self.header[2])

    def write_header(self, kind: MessageKind, ticket: int | None = None, version: int = 0) -> None:
        """Say what the message is."""
        self.header[:3] = torch.tensor([kind, -1 if ticket is None else ticket, version])

    @torch.no_grad()
    def copy_from(self, tensors: Iterable[Tensor]) -> None:
        """Copy the numbers of tensors in."""
        torch._foreach_copy_(self.views, [tensor.detach() for tensor in tensors])


def build_header(kind: MessageKind) -> Tensor:
    """Build a message that has a header alone."""
    words = torch.zeros(HEADER_WORDS, dtype=torch.int64)
    words[0], words[1] = kind, -1
    return words.view(torch.uint8)
