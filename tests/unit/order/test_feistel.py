"""Properties of the Feistel permutation: every index once, uniform, random access, no memory."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from equipoise.order.feistel import FeistelPermutation
from equipoise.rng import splitmix64

BILLION = 10**9
SIZES = [1, 2, 3, 4, 5, 16, 17, 1009, 4096, 4097, 65_537, 2**20 + 1]  # 17, 1009 and 65,537 are primes


@pytest.mark.parametrize("size", SIZES)
def test_every_index_is_taken_once(size):
    indices = FeistelPermutation(7, size).take(0, size)
    assert indices.dtype == np.int64
    np.testing.assert_array_equal(np.sort(indices), np.arange(size))


def permute_by_definition(key, size, rows, columns, index):
    """Walk one index on Python integers until it is below `size`."""
    while True:
        row, column = divmod(index, columns)
        for round_index in range(0, 6, 2):
            row = (row + (splitmix64(column, splitmix64(key, round_index)) >> 32) * rows // 2**32) % rows
            column = (column + (splitmix64(row, splitmix64(key, round_index + 1)) >> 32) * columns // 2**32) % columns
        index = row * columns + column
        if index < size:
            return index


@pytest.mark.parametrize(
    ("size", "rows", "columns"), [(2**20 + 1, 1024, 1025), (BILLION, 31_623, 31_623), (2**40, 2**20, 2**20)]
)
def test_permutation_follows_its_definition(size, rows, columns):
    start = size - 50
    expected = [permute_by_definition(99, size, rows, columns, index) for index in range(start, size)]
    assert FeistelPermutation(99, size).take(start, 50).tolist() == expected


@given(st.integers(0, 2**63 - 1), st.integers(1, 3000), st.integers(0, 3100), st.integers(0, 3100))
def test_slices_are_those_of_the_whole_permutation(key, size, start, count):
    permutation = FeistelPermutation(key, size)
    whole = permutation.take(0, size)
    np.testing.assert_array_equal(np.sort(whole), np.arange(size))
    np.testing.assert_array_equal(permutation.take(start, count), whole[start : start + count])


def test_permutations_of_two_keys_agree_in_one_place_on_average():
    """The number of places in which two random permutations agree is nearly a Poisson number of mean 1."""
    permutations = [FeistelPermutation(key, 1000).take(0, 1000) for key in range(200)]
    agreements = [
        int((first == second).sum()) for first, second in zip(permutations[::2], permutations[1::2], strict=True)
    ]
    assert 60 < sum(agreements) < 140  # four standard deviations of a Poisson sum of 100


@pytest.mark.parametrize("size", [2**20 + 1, BILLION])
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_index_at_a_place_is_uniform_over_keys(size, place):
    start = int(place * (size - 1))
    indices = np.array([FeistelPermutation(key, size).take(start, 1)[0] for key in range(800)])
    assert stats.chisquare(np.bincount(indices * 16 // size, minlength=16)).pvalue > 1e-3


@pytest.fixture(scope="module")
def shuffled_million():
    return FeistelPermutation(11, 2**20 + 1).take(0, 2**20 + 1)


@pytest.mark.parametrize("distance", [1, 2, 1024, 1025, 2050])  # the network has 1025 columns
def test_indices_some_places_apart_are_independent(shuffled_million, distance):
    bins = shuffled_million * 64 // len(shuffled_million)
    pair_counts = np.bincount(bins[:-distance] * 64 + bins[distance:], minlength=64 * 64)
    # the rows and columns of the table have the same sums, because each index is taken once
    assert stats.chisquare(pair_counts, ddof=64 * 64 - 1 - 63 * 63).pvalue > 1e-3


def test_indices_do_not_depend_on_their_places(shuffled_million):
    places = np.arange(len(shuffled_million))
    bins = (places * 64 // len(places)) * 64 + shuffled_million * 64 // len(places)
    assert stats.chisquare(np.bincount(bins, minlength=64 * 64), ddof=64 * 64 - 1 - 63 * 63).pvalue > 1e-3


def test_billion_examples_take_no_memory():
    tracemalloc.start()
    try:
        permutation = FeistelPermutation(3, BILLION)
        slices = [permutation.take(start, 1000) for start in (0, BILLION // 2, BILLION - 1000)]
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    indices = np.concatenate(slices)
    assert len(np.unique(indices)) == 3000
    assert indices.min() >= 0 and indices.max() < BILLION
    assert peak_bytes < 1e6
    assert len(permutation.take(BILLION - 10, 1000)) == 10
    assert len(permutation.take(BILLION, 1)) == 0
