"""Closed forms of what a compression sends: bytes that leave a worker, and rounds.

bf16 and int8 go by one all-to-all of parts, which are summed and encoded again, and one more that gives the encoded
sums to all. powersgd sums the P of all matrices together with what goes exact, then all Q. topk is gathered.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.registries.exchange_registry import CompressionMethod

BLOCK_NUMBERS = 256  # numbers that share a scale; parts of a sum begin at blocks
BLOCK_BYTES = {"bf16": 2 * BLOCK_NUMBERS, "int8": BLOCK_NUMBERS + 4}  # of an encoded block; int8 has a scale of fp32
PLACE_BYTES = 4  # of the place of a number in the gradient


class CompressionCost(NamedTuple):
    """What one exchange of compressed gradients takes from a worker."""

    mean_sent_bytes: float
    """bytes that leave a worker, averaged over workers"""
    max_sent_bytes: float
    """bytes that leave the worker that sends most"""
    rounds: int
    """messages that wait for each other"""


class LowRankNumbers(NamedTuple):
    """Numbers that powersgd sums over workers."""

    p: int
    q: int
    exact: int
    """those of tensors that are no matrices, or of which a product of two matrices would have no fewer"""


@dataclass(frozen=True, kw_only=True)
class GradientShapes:
    """Shapes of the gradients of a model, as far as the bytes that a compression sends depend on them."""

    matrices: tuple[tuple[int, int], ...]
    """rows and columns of each tensor of two or more dimensions: the first dimension, and all others together"""
    other_numbers: int = 0
    """numbers in the other tensors, such as biases"""
    number_bytes: int = 4
    """bytes of a number"""

    @classmethod
    def from_shapes(cls, shapes: Iterable[Sequence[int]], number_bytes: int = 4) -> "GradientShapes":
        """Build the facts from the shapes of all tensors."""
        matrices: list[tuple[int, int]] = []
        others = 0
        for shape in map(tuple, shapes):
            if len(shape) > 1 and all(shape):
                matrices.append((int(shape[0]), math.prod(shape[1:])))
            else:
                others += math.prod(shape)
        return cls(matrices=tuple(matrices), other_numbers=others, number_bytes=number_bytes)

    @property
    def num_numbers(self) -> int:
        """Numbers in the gradients of all tensors."""
        return sum(rows * columns for rows, columns in self.matrices) + self.other_numbers

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of all tensors."""
        return self.num_numbers * self.number_bytes

    def count_low_rank_numbers(self, rank: int) -> LowRankNumbers:
        """Return the numbers that powersgd sums at a rank; matrices that it would not shorten go exact."""
        short = [(rows, columns) for rows, columns in self.matrices if saves_bytes(rows, columns, rank)]
        p, q = rank * sum(rows for rows, _ in short), rank * sum(columns for _, columns in short)
        return LowRankNumbers(p, q, self.num_numbers - sum(rows * columns for rows, columns in short))


def saves_bytes(rows: int, columns: int, rank: int) -> bool:
    """Return whether the two matrices of a product of this rank have fewer numbers than the matrix itself."""
    return rank * (rows + columns) < rows * columns


def find_largest_rank(rows: int, columns: int) -> int:
    """Return the largest rank at which a matrix is sent in fewer numbers; 0 if there is none."""
    return (rows * columns - 1) // (rows + columns) if rows * columns else 0


def count_blocks(numbers: int) -> int:
    """Return the blocks of so many numbers, of which the last may not be full."""
    return -(-numbers // BLOCK_NUMBERS)


def count_kept_numbers(numbers: int, share: float) -> int:
    """Return how many numbers a share keeps: at least one, and never a fraction of one."""
    return min(numbers, max(1, round(share * numbers)))


def compression_cost(
    method: CompressionMethod,
    gradient: GradientShapes | float,
    workers: int,
    nodes: int = 1,
    all_reduce: str = "ring",
) -> CompressionCost | None:
    """Return what an exchange sends, from the shapes of a gradient or else its bytes in fp32.

    `all_reduce` sums what `none` and `powersgd` send. None for powersgd without shapes.
    """
    shapes = gradient if isinstance(gradient, GradientShapes) else None
    size = float(shapes.gradient_bytes if shapes else gradient)  # type: ignore[arg-type]  # a number without shapes
    number_bytes = shapes.number_bytes if shapes else 4
    numbers = math.ceil(size / number_bytes)
    if workers == 1 or not numbers:
        return CompressionCost(0.0, 0.0, 0)
    if method.kind in BLOCK_BYTES:
        return block_cost(count_blocks(numbers), BLOCK_BYTES[method.kind], workers)
    if method.kind == "topk":
        sent = (workers - 1) * count_kept_numbers(numbers, method.amount) * (number_bytes + PLACE_BYTES)
        return CompressionCost(float(sent), float(sent), 1)
    sums = [size]
    if method.kind == "powersgd":
        if shapes is None:
            return None
        p, q, exact = shapes.count_low_rank_numbers(int(method.amount))
        sums = [(p + exact) * number_bytes, q * number_bytes]
    costs = [all_reduce_cost(all_reduce, workers, part, nodes) for part in sums if part]
    return CompressionCost(
        sum(cost.mean_sent_bytes for cost in costs),
        sum(cost.max_sent_bytes for cost in costs),
        sum(cost.rounds for cost in costs),
    )


def block_cost(blocks: int, block_bytes: int, workers: int) -> CompressionCost:
    """Return the cost of a sum of encoded blocks, of which each worker sums a part."""
    largest = -(-blocks // workers)
    return CompressionCost(
        2 * (workers - 1) / workers * blocks * block_bytes,
        float((blocks - largest + (workers - 1) * largest) * block_bytes),
        2,
    )
