"""Shape, memory layout and type of a tensor that a stage of a pipeline hands on."""

from typing import NamedTuple

import torch
from torch import Tensor

MAX_DIMS = 8
DTYPES = torch.float32, torch.float64, torch.bfloat16, torch.float16
ROW_LENGTH = 2 + 2 * MAX_DIMS


class TensorLayout(NamedTuple):
    """What a receiver must know of a dense tensor before it comes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def read(cls, tensor: Tensor) -> "TensorLayout":
        """Return the layout of a tensor, made dense if it leaves gaps or repeats elements."""
        dense = torch.empty_like(tensor, device="meta")
        return cls(tuple(tensor.shape), dense.stride(), tensor.dtype)

    @classmethod
    def from_row(cls, row: Tensor) -> "TensorLayout":
        """Read a layout from the numbers of `to_row`."""
        dtype, dims, *numbers = (int(number) for number in row.tolist())
        return cls(tuple(numbers[:dims]), tuple(numbers[MAX_DIMS : MAX_DIMS + dims]), DTYPES[dtype])

    def to_row(self) -> Tensor:
        """Return the layout as `ROW_LENGTH` whole numbers."""
        row = torch.zeros(ROW_LENGTH, dtype=torch.int64)
        dims = len(self.shape)
        row[0], row[1] = DTYPES.index(self.dtype), dims
        row[2 : 2 + dims] = torch.tensor(self.shape, dtype=torch.int64)
        row[2 + MAX_DIMS : 2 + MAX_DIMS + dims] = torch.tensor(self.strides, dtype=torch.int64)
        return row

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def allocate(self, device: torch.device) -> Tensor:
        """Return an uninitialized tensor of this layout."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device)

    def arrange(self, tensor: Tensor) -> Tensor:
        """Return a tensor in this layout, itself if it has it."""
        if tensor.shape != self.shape:
            raise ValueError(
                f"a stage of the pipeline must hand on a tensor of {self.shape}, not {tuple(tensor.shape)}"
            )
        return tensor if tensor.stride() == self.strides else self.allocate(tensor.device).copy_(tensor)


def is_transferable(value: object) -> bool:
    """Return whether a value is one that a stage can hand on: a tensor of real numbers."""
    return isinstance(value, Tensor) and value.dtype in DTYPES and value.ndim <= MAX_DIMS


def flatten_dense(tensor: Tensor) -> Tensor:
    """Return the memory of a dense tensor as one row."""
    return tensor.as_strided((tensor.numel(),), (1,))
