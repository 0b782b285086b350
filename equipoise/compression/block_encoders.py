"""Encode numbers in blocks of bytes: as bf16, or as int8 with one scale for each block.

Blocks begin at the same numbers whichever process encodes them, so what is sent of a gradient does not depend on how
many processes there are.
"""

from typing import Protocol

import torch
from torch import Tensor

from equipoise.planning.exchanges.compression_cost import BLOCK_BYTES

SCALE_BYTES = 4  # of an fp32 scale in front of a block of int8
LARGEST_CODE = 127


class BlockEncoder(Protocol):
    """Encoder of rows of `BLOCK_NUMBERS` numbers in rows of `block_bytes` bytes."""

    @property
    def block_bytes(self) -> int:
        """Bytes of an encoded block."""

    def encode(self, blocks: Tensor) -> Tensor:
        """Return the bytes of each block."""

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the numbers of encoded blocks."""


class Bfloat16Encoder:
    """Encoder that rounds numbers to bf16."""

    block_bytes = BLOCK_BYTES["bf16"]

    def encode(self, blocks: Tensor) -> Tensor:
        """Return the bytes of each block."""
        return blocks.to(torch.bfloat16).view(torch.uint8)

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the numbers of encoded blocks."""
        return rows.view(torch.bfloat16).to(dtype)


class Int8Encoder:
    """Encoder that rounds numbers to 255 levels between the largest magnitude of their block and its negative."""

    block_bytes = BLOCK_BYTES["int8"]

    def encode(self, blocks: Tensor) -> Tensor:
        """Return the bytes of each block: its scale, then a code for each number.

        A block with a number that is not finite decodes to numbers that are not finite either.
        """
        low, high = torch.aminmax(blocks, dim=1, keepdim=True)
        scales = (torch.maximum(-low, high) / LARGEST_CODE).float()
        divisors = torch.where(scales == 0, 1, scales).to(blocks.dtype)
        # a scale that is rounded down would make the largest code 128
        codes = (blocks / divisors).round_().clamp_(-LARGEST_CODE, LARGEST_CODE).nan_to_num_().to(torch.int8)
        return torch.cat([scales.view(torch.uint8), codes.view(torch.uint8)], 1)

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the numbers of encoded blocks."""
        scales = rows[:, :SCALE_BYTES].contiguous().view(torch.float32)
        return rows[:, SCALE_BYTES:].view(torch.int8).to(dtype).mul_(scales.to(dtype))


BLOCK_ENCODERS: dict[str, BlockEncoder] = {"bf16": Bfloat16Encoder(), "int8": Int8Encoder()}
