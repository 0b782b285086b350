"""Keyed permutation of any size, computed place by place without memory.

A Feistel network (Luby and Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988)
permutes the numbers of 2k bits, the fewest that hold all indices, with SplitMix64 as the round function. A number that
is no index is permuted again until it is one: cycle walking (Black and Rogaway, "Ciphers with arbitrary finite
domains", 2002), at most four passes on average. Good enough for shuffling but not for cryptography.
"""

import numpy as np
from numpy.typing import NDArray

from equipoise.rng import splitmix64

NUM_ROUNDS = 6  # after four, examples 2**k places apart still fall together too often (chi-squared, p = 0.008)


class FeistelPermutation:
    """Permutation of the indices below `size` that a key selects."""

    def __init__(self, key: int, size: int) -> None:
        self.size = size
        self._half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
        self._round_keys = [np.full(1, splitmix64(key, index), np.uint64) for index in range(NUM_ROUNDS)]

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """Return the indices at `count` places from `start` on, fewer at the end, as a slice does."""
        numbers = self._permute_domain(np.arange(start, min(start + count, self.size), dtype=np.uint64))
        outside = np.flatnonzero(numbers >= self.size)
        while len(outside):
            numbers[outside] = self._permute_domain(numbers[outside])
            outside = outside[numbers[outside] >= self.size]
        return numbers.astype(np.int64)

    def _permute_domain(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Permute numbers of twice `_half_bits` bits."""
        mask = (1 << self._half_bits) - 1
        left, right = numbers >> self._half_bits, numbers & mask
        for round_key in self._round_keys:
            left, right = right, left ^ (splitmix64(right, round_key) & mask)
        return np.asarray(left << self._half_bits | right, np.uint64)
