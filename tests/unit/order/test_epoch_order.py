"""Orders of the examples: NumPy's permutation, the Feistel permutation above 2**20, and shards one after another."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.errors import EquipoiseError
from equipoise.order import example_order
from equipoise.order.epoch_order import MAX_STORED_EXAMPLES
from equipoise.order.feistel import FeistelPermutation
from equipoise.rng import derive_seed

LARGE = MAX_STORED_EXAMPLES + 1
BILLION = 10**9
shard_size_lists = st.lists(st.integers(0, 30), min_size=1, max_size=12)


@pytest.mark.parametrize("num_examples", [1, 1797, MAX_STORED_EXAMPLES])
def test_order_up_to_a_million_examples_is_that_of_numpy(num_examples):
    expected = np.random.Generator(np.random.Philox(key=derive_seed(5, 2))).permutation(num_examples)
    np.testing.assert_array_equal(example_order(5, 2, num_examples).take(0, num_examples), expected)


@pytest.mark.parametrize("num_examples", [LARGE, BILLION])
def test_order_of_more_examples_is_computed_by_place(num_examples):
    expected = FeistelPermutation(derive_seed(5, 2), num_examples).take(1000, 100)
    np.testing.assert_array_equal(example_order(5, 2, num_examples).take(1000, 100), expected)


@pytest.mark.parametrize("num_shards", [None, 40])
@pytest.mark.parametrize("num_examples", [1_000_000, LARGE, BILLION])
def test_order_changes_by_seed_and_epoch(num_examples, num_shards):
    shard_sizes = num_shards and np.diff(np.linspace(0, num_examples, num_shards + 1).astype(int))
    first, again, next_epoch, other_seed = (
        example_order(seed, epoch, num_examples, shard_sizes).take(0, 1000)
        for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    )
    np.testing.assert_array_equal(first, again)
    assert (first != next_epoch).mean() > 0.99
    assert (first != other_seed).mean() > 0.99


@given(st.integers(0, 2**40), st.integers(0, 5), shard_size_lists, st.data())
def test_slices_are_those_of_the_whole_order(seed, epoch, shard_sizes, data):
    num_examples = sum(shard_sizes)
    for sizes in (None, shard_sizes):
        order = example_order(seed, epoch, num_examples, sizes)
        whole = order.take(0, num_examples)
        np.testing.assert_array_equal(np.sort(whole), np.arange(num_examples))
        for _ in range(3):
            start, count = data.draw(st.integers(0, num_examples + 2)), data.draw(st.integers(0, num_examples + 2))
            np.testing.assert_array_equal(order.take(start, count), whole[start : start + count])


@given(st.integers(0, 2**40), shard_size_lists)
def test_examples_of_a_shard_are_read_one_after_another(seed, shard_sizes):
    num_examples = sum(shard_sizes)
    shard_of_example = np.repeat(np.arange(len(shard_sizes)), shard_sizes)
    shards = shard_of_example[example_order(seed, 0, num_examples, shard_sizes).take(0, num_examples)]
    assert (np.diff(shards) != 0).sum() == max(0, len(np.unique(shards)) - 1)


def test_shards_and_the_examples_inside_each_are_permuted_anew():
    orders = [example_order(0, epoch, 4000, [100] * 40).take(0, 4000).reshape(40, 100) for epoch in range(2)]
    shards = [order[:, 0] // 100 for order in orders]
    assert len({tuple(order) for order in [*shards, np.arange(40)]}) == 3
    assert len({tuple(row % 100) for order in orders for row in order}) == 80  # no two shards or epochs share an order


def test_sharded_order_follows_its_definition():
    shard_sizes, (seed, epoch) = [3, 0, 50, 7], (5, 2)
    first_examples = np.cumsum([0, *shard_sizes])
    expected = [
        first_examples[shard] + example_order(derive_seed(seed, int(shard)), epoch, shard_sizes[shard]).take(0, 50)
        for shard in example_order(seed, epoch, 4).take(0, 4)
    ]
    taken = example_order(seed, epoch, 60, shard_sizes).take(0, 60)
    np.testing.assert_array_equal(taken, np.concatenate(expected))


def test_examples_of_a_shard_of_a_billion_lie_in_it():
    shard_sizes = [BILLION, 7, 2 * BILLION]
    order = example_order(1, 0, sum(shard_sizes), shard_sizes)
    bounds = np.cumsum([0, *shard_sizes])
    starts = np.cumsum([0, *(shard_sizes[shard] for shard in permuted_shards(order, shard_sizes))])
    assert starts[-1] == bounds[-1]
    for start, end in pairwise(starts):
        indices = np.concatenate([order.take(int(start), 3), order.take(int(end) - 3, 3)])
        assert len(set(np.searchsorted(bounds, indices, side="right"))) == 1


def permuted_shards(order, shard_sizes):
    """Yield the shards in the order in which they are read."""
    start, bounds = 0, np.cumsum(shard_sizes)
    while start < bounds[-1]:
        shard = int(np.searchsorted(bounds, order.take(start, 1)[0], side="right"))
        yield shard
        start += shard_sizes[shard]


@pytest.mark.parametrize("shard_sizes", [[], [4, 5], [11, -1], [5.0, 5.0], [[5, 5]]])
def test_sizes_of_shards_that_do_not_fit_the_data_are_refused(shard_sizes):
    with pytest.raises(EquipoiseError) as refusal:
        example_order(0, 0, 10, shard_sizes)
    assert refusal.value.code == "dataset-invalid"
