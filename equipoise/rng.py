"""Random numbers keyed by example, not by process.

A number drawn for an example depends only on the seed, the epoch and the example, so that any number
of workers draws the same. Keys are mixed by SplitMix64 (Steele, Lea and Flood, "Fast splittable
pseudorandom number generators", 2014), which is good enough for augmentation but not for cryptography.
"""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Bits = TypeVar("Bits", int, NDArray[Any])
_UINT64_MASK = 0xFFFFFFFFFFFFFFFF  # Python integers do not overflow


def splitmix64(state: Bits, value: Bits) -> Bits:
    """Mix a value into a 64-bit state; each bit of either affects every bit of the result."""
    x = ((state ^ value) + 0x9E3779B97F4A7C15) & _UINT64_MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _UINT64_MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _UINT64_MASK
    result: Bits = x ^ (x >> 31)
    return result


def derive_seed(*parts: int) -> int:
    """Derive a seed below 2**63 from several integers, such as seed, step and micro-batch index."""
    state = 0
    for part in parts:
        state = splitmix64(state, part)
    return state >> 1


def example_uniforms(
    seed: int, epochs: NDArray[np.int64], examples: NDArray[np.int64], num_draws: int
) -> NDArray[np.float64]:
    """Draw `num_draws` uniform numbers in [0, 1) for each example in its epoch, one row per example."""
    state = splitmix64(np.full(1, seed, np.uint64), epochs.astype(np.uint64))
    state = splitmix64(state, examples.astype(np.uint64))
    bits = splitmix64(state[:, None], np.arange(num_draws, dtype=np.uint64))
    return np.asarray((bits >> 11) * 2.0**-53)


def epoch_permutation(seed: int, epoch: int, num_examples: int) -> NDArray[np.int64]:
    """Return the order of the examples in an epoch as a permutation of their indices."""
    return np.random.Generator(np.random.Philox(key=derive_seed(seed, epoch))).permutation(num_examples)
