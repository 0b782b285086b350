"""Choice of the order of the examples in an epoch, a function of (seed, epoch, place).

Up to 2**20 examples, the order is NumPy's permutation. Above, where that would take 8 bytes per example in each worker,
a Feistel permutation computes each place when asked. Data in shards are read one shard after another: the shards are
permuted, and the examples inside each.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import EquipoiseError
from equipoise.order.feistel import FeistelPermutation
from equipoise.rng import derive_seed, epoch_permutation

MAX_STORED_EXAMPLES = 1 << 20  # 8 MB


class ExampleOrder(Protocol):
    """Permutation of the examples' indices with random access."""

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the indices at `count` places from `start` on, fewer at the end, as a slice does."""


class StoredPermutation:
    """Permutation whose indices are held in memory."""

    def __init__(self, indices: NDArray[np.int64]) -> None:
        self._indices = indices

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the indices at `count` places from `start` on, fewer at the end."""
        return self._indices[start : start + count]


class ShardedOrder:
    """Order that reads all examples of a shard before the next; its memory grows with the number of shards only."""

    def __init__(self, seed: int, epoch: int, shard_sizes: NDArray[np.int64]) -> None:
        self._seed, self._epoch = seed, epoch
        self._shards = permute_examples(seed, epoch, len(shard_sizes)).take(0, len(shard_sizes))
        self._sizes = shard_sizes[self._shards]
        self._end_places = np.cumsum(self._sizes)
        self._first_examples = (np.cumsum(shard_sizes) - shard_sizes)[self._shards]
        self._current_turn, self._current_order = -1, permute_examples(0, 0, 0)

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the indices at `count` places from `start` on, fewer at the end, as a slice does."""
        end = min(start + count, int(self._end_places[-1]))
        turn = int(np.searchsorted(self._end_places, start, side="right"))
        parts = [np.empty(0, np.int64)]
        while start < end:
            place = start - int(self._end_places[turn] - self._sizes[turn])
            part = self._order_inside(turn).take(place, end - start)
            parts.append(part + self._first_examples[turn])
            start, turn = start + len(part), turn + 1
        return np.concatenate(parts)

    def _order_inside(self, turn: int) -> ExampleOrder:
        """Return the order inside the shard whose turn it is, kept until another is asked for."""
        if turn != self._current_turn:
            shard_seed = derive_seed(self._seed, int(self._shards[turn]))
            self._current_order = permute_examples(shard_seed, self._epoch, int(self._sizes[turn]))
            self._current_turn = turn
        return self._current_order


def example_order(seed: int, epoch: int, num_examples: int, shard_sizes: Sequence[int] | None = None) -> ExampleOrder:
    """Return the order of the examples in an epoch; shard by shard if `shard_sizes` counts the examples of each."""
    if shard_sizes is None:
        return permute_examples(seed, epoch, num_examples)
    sizes = np.asarray(shard_sizes)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or (sizes < 0).any() or sizes.sum() != num_examples:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot order the examples by shard: shard_sizes must be integers that sum to {num_examples}",
            "give the number of examples of each shard, in the order of their indices",
        )
    return ShardedOrder(seed, epoch, sizes.astype(np.int64))


def permute_examples(seed: int, epoch: int, num_examples: int) -> ExampleOrder:
    """Return a permutation of all examples of an epoch: stored if it is small, else computed."""
    if num_examples > MAX_STORED_EXAMPLES:
        return FeistelPermutation(derive_seed(seed, epoch), num_examples)
    return StoredPermutation(epoch_permutation(seed, epoch, num_examples))
