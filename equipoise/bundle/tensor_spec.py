"""Tensors that a bundle's programs take and return, as its manifest declares them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

TensorType = Literal["uint8", "int64", "float32"]
OPEN_SIZE = -1
"""size of a dimension that may have any"""


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """Name, type and shape of a tensor; a size of -1 is open, and the first one is the number of examples."""

    name: Annotated[str, Meta(min_length=1)]
    """name of the tensor"""
    dtype: TensorType
    """type of its elements"""
    shape: Annotated[tuple[Annotated[int, Meta(ge=OPEN_SIZE, le=2**31)], ...], Meta(min_length=1, max_length=8)]
    """size of each dimension; -1 for one that may have any, such as the first: the number of examples"""

    def __str__(self) -> str:
        sizes = ("any" if size == OPEN_SIZE else str(size) for size in self.shape)
        return f"{self.name}: {self.dtype} ({', '.join(sizes)})"
