"""Tensors that a bundle's program takes: by position or keyword, each with its type and the sizes it may have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from equipoise.errors import EquipoiseError

SizeBounds = tuple[int, int | None]
"""least and largest size of a dimension; None if any larger one is allowed"""


@dataclass(frozen=True)
class ProgramInput:
    """Tensor that a program takes."""

    key: int | str
    """position among the positional arguments, or keyword"""
    dtype: torch.dtype | None = None
    """type of its elements; None if the program accepts what its operators accept"""
    sizes: tuple[SizeBounds, ...] | None = None
    """bounds of each dimension; None as for the type"""

    def to_json(self) -> dict[str, Any]:
        """Return the instruction of a program that stands for this input."""
        fixed_or_bounds = [
            least if least == most else None if (least, most) == (0, None) else [least, most]
            for least, most in self.sizes or ()
        ]
        return {"input": self.key, "dtype": str(self.dtype).removeprefix("torch."), "shape": fixed_or_bounds}

    @classmethod
    def from_json(cls, instruction: Mapping[str, Any]) -> Self:
        """Build an input from its instruction; `true` instead of a key is the only input, of any type and shape."""
        if instruction["input"] is True:
            return cls(0)
        key, dtype = instruction["input"], getattr(torch, instruction["dtype"])
        if not isinstance(key, int | str) or isinstance(key, bool) or not isinstance(dtype, torch.dtype):
            raise EquipoiseError(
                "bundle-invalid", f"cannot load the bundle's program: {key!r} or its dtype does not describe an input"
            )
        return cls(key, dtype, tuple(parse_size_bounds(size) for size in instruction["shape"]))

    def require_fit(self, value: Any) -> None:
        """Refuse a value that is not a tensor of this type and shape."""
        if isinstance(value, Tensor) and self.dtype in (None, value.dtype):
            if self.sizes is None:
                return
            if len(self.sizes) == value.ndim and all(
                least <= size and (most is None or size <= most)
                for size, (least, most) in zip(value.shape, self.sizes, strict=True)
            ):
                return
        actual = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise EquipoiseError(
            "inputs-invalid", f"cannot run the program: its input {self.key!r} must be {self}, got {actual}"
        )

    def __str__(self) -> str:
        sizes = (
            str(least) if least == most else "any" if most is None else f"{least} to {most}"
            for least, most in self.sizes or ()
        )
        return f"{self.dtype} ({', '.join(sizes)})" if self.sizes is not None else "a tensor"


def parse_size_bounds(size: Any) -> SizeBounds:
    """Return the bounds of a dimension from its JSON form: a number, a pair of bounds, or null for any size."""
    least, most = (0, None) if size is None else (size, size) if isinstance(size, int) else size
    if not isinstance(least, int) or not isinstance(most, int | None):
        raise EquipoiseError(
            "bundle-invalid", f"cannot load the bundle's program: {size!r} does not describe the size of an input"
        )
    return least, most


def require_distinct_inputs(inputs: list[ProgramInput]) -> None:
    """Refuse a program without inputs, or with positions that do not count from 0, or with equal keywords."""
    positions = [program_input.key for program_input in inputs if isinstance(program_input.key, int)]
    keys = {program_input.key for program_input in inputs}
    if not inputs or len(keys) < len(inputs) or positions != [*range(len(positions))]:
        raise EquipoiseError(
            "bundle-invalid",
            "cannot load the bundle's program: it must have one input and end with an output, or several inputs that "
            "differ in their keys",
        )
