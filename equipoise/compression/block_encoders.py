"""Encode numbers in blocks of bytes: as bf16, or as int8 with one scale for each block.

Blocks begin at the same numbers whichever process encodes them, so what is sent of a gradient does not depend on how
many processes there are. Results go into tensors of the caller: to allocate 11 MB takes longer than to round them.
"""

from typing import Protocol

import torch
from torch import Tensor

from equipoise.planning.exchanges.compression_cost import BLOCK_BYTES

SCALE_BYTES = 4  # of an fp32 scale in front of a block of int8
LARGEST_CODE = 127
SMALLEST_SCALE = torch.finfo(torch.float32).tiny  # a smaller one is too coarse for codes up to 127


class BlockEncoder(Protocol):
    """Encoder of rows of `BLOCK_NUMBERS` numbers in rows of `block_bytes` bytes."""

    @property
    def block_bytes(self) -> int:
        """Bytes of an encoded block."""

    def encode(self, blocks: Tensor, rows: Tensor, scratch: Tensor) -> None:
        """Write the bytes of each block to `rows`; `scratch` has the shape and dtype of the blocks."""

    def decode(self, rows: Tensor, blocks: Tensor) -> None:
        """Write the numbers of encoded blocks to `blocks`."""


class Bfloat16Encoder:
    """Encoder that rounds numbers to bf16."""

    block_bytes = BLOCK_BYTES["bf16"]

    def encode(self, blocks: Tensor, rows: Tensor, scratch: Tensor) -> None:
        """Write the bytes of each block to `rows`."""
        rows.view(torch.bfloat16).copy_(blocks)

    def decode(self, rows: Tensor, blocks: Tensor) -> None:
        """Write the numbers of encoded blocks to `blocks`."""
        blocks.copy_(rows.view(torch.bfloat16))


class Int8Encoder:
    """Encoder that rounds numbers to 255 levels between the largest magnitude of their block and its negative."""

    block_bytes = BLOCK_BYTES["int8"]

    def encode(self, blocks: Tensor, rows: Tensor, scratch: Tensor) -> None:
        """Write the bytes of each block to `rows`: its scale, then a code for each number.

        A block with a number that is not finite decodes to numbers that are not finite either.
        """
        low, high = blocks.amin(1, keepdim=True), blocks.amax(1, keepdim=True)  # aminmax takes 17 times as long
        scales = (torch.maximum(-low, high) / LARGEST_CODE).float()
        scales.masked_fill_(scales < SMALLEST_SCALE, 0)
        divisors = scales.masked_fill(scales == 0, torch.inf).to(blocks.dtype)
        torch.div(blocks, divisors, out=scratch).round_()
        rows[:, :SCALE_BYTES] = scales.view(torch.uint8)
        rows[:, SCALE_BYTES:].view(torch.int8).copy_(scratch)

    def decode(self, rows: Tensor, blocks: Tensor) -> None:
        """Write the numbers of encoded blocks to `blocks`."""
        scales = rows[:, :SCALE_BYTES].contiguous().view(torch.float32)
        blocks.copy_(rows[:, SCALE_BYTES:].view(torch.int8)).mul_(scales.to(blocks.dtype))


BLOCK_ENCODERS: dict[str, BlockEncoder] = {"bf16": Bfloat16Encoder(), "int8": Int8Encoder()}
