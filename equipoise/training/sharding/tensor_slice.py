"""Which part of a tensor a worker holds."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class TensorSlice(NamedTuple):
    """Part of a tensor: one or several ranges along one of its dimensions."""

    shape: tuple[int, ...]
    """shape of the whole tensor"""
    dim: int
    ranges: tuple[tuple[int, int], ...]
    """first index and length of each range; none of an empty part"""

    @classmethod
    def from_json(cls, value: Any) -> "TensorSlice":
        """Read a slice from the lists of `to_json`."""
        shape, dim, ranges = value
        return cls(tuple(map(int, shape)), int(dim), tuple((int(start), int(length)) for start, length in ranges))

    def to_json(self) -> list[Any]:
        """Return the slice as lists of numbers."""
        return [list(self.shape), self.dim, [list(part) for part in self.ranges]]

    @property
    def length(self) -> int:
        """Length of the part along its dimension."""
        return sum(length for _, length in self.ranges)

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Shape of this worker's part."""
        return (*self.shape[: self.dim], self.length, *self.shape[self.dim + 1 :])

    def cut(self, whole: Tensor) -> Tensor:
        """Return this part of a whole tensor."""
        if not self.ranges:
            return whole.narrow(self.dim, 0, 0)
        pieces = [whole.narrow(self.dim, start, length) for start, length in self.ranges]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, self.dim)

    def paste(self, part: Tensor, whole: Tensor) -> None:
        """Write this part into a whole tensor."""
        lengths = [length for _, length in self.ranges]
        for (start, length), piece in zip(self.ranges, part.split(lengths, self.dim) if lengths else (), strict=True):
            whole.narrow(self.dim, start, length).copy_(piece)


def join_parts(parts: Iterable[tuple[TensorSlice, Tensor]]) -> Tensor:
    """Return the whole tensor of parts that cover it; refuse parts that leave a gap."""
    whole: Tensor | None = None
    covered = 0
    for place, part in parts:
        if whole is None:
            whole = part.new_empty(place.shape)
        place.paste(part, whole)
        covered += place.length
    if whole is None or covered != whole.shape[place.dim]:
        raise ValueError(f"the parts cover {covered} of {None if whole is None else whole.shape[place.dim]} rows")
    return whole
