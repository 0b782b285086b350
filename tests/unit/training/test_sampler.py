from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.config import TrainConfig
from equipoise.training.sampler import (
    MicroBatchOrder,
    group_micro_batches,
    iterate_micro_batches,
    list_own_micro_batches,
    rank_micro_batches,
)
from tests.support.errors import raises_code


@given(st.integers(1, 40), st.data())
def test_micro_batches_are_shared_almost_equally_among_workers(num_micro_batches, data):
    workers = data.draw(st.integers(1, num_micro_batches))
    shares = [rank_micro_batches(num_micro_batches, rank, workers) for rank in range(workers)]
    assert [index for indices in shares for index in indices] == list(range(num_micro_batches))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_more_workers_than_micro_batches_are_refused():
    with pytest.raises(ValueError, match="3 workers cannot share 2 micro-batches"):
        rank_micro_batches(2, 0, 3)


def read_example_order(examples, batch, num_micro_batches, workers, steps, seed=0, shard_sizes=None):
    """Return the (epoch, example) pairs of the first `steps` steps, in the order of micro-batches."""
    pairs_by_micro_batch = {}
    for rank in range(workers):
        micro_indices = rank_micro_batches(num_micro_batches, rank, workers)
        for micro in islice(
            iterate_micro_batches(seed, examples, batch, num_micro_batches, micro_indices, 0, shard_sizes),
            steps * len(micro_indices),
        ):
            pairs_by_micro_batch[micro.step, micro.micro_index] = list(zip(micro.epochs, micro.examples, strict=True))
    return [pair for key in sorted(pairs_by_micro_batch) for pair in pairs_by_micro_batch[key]]


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 6), st.data())
def test_examples_of_a_step_do_not_depend_on_the_number_of_workers(examples, batch, num_micro_batches, data):
    workers = data.draw(st.integers(1, num_micro_batches))
    assert read_example_order(examples, batch, num_micro_batches, workers, 5) == read_example_order(
        examples, batch * num_micro_batches, 1, 1, 5
    )


@given(st.integers(1, 30), st.integers(1, 70))
def test_every_epoch_has_every_example_once_for_any_batch(examples, batch):
    steps = -(-3 * examples // batch)
    pairs = read_example_order(examples, batch, 1, 1, steps)
    assert sorted(pairs[: 3 * examples]) == [(epoch, i) for epoch in range(3) for i in range(examples)]


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 12))
def test_micro_batches_can_be_started_at_any_step(examples, batch, step):
    expected = list(islice(iterate_micro_batches(7, examples, batch, 2, range(2), 0), 2 * step + 4))[2 * step :]
    started_at_step = list(islice(iterate_micro_batches(7, examples, batch, 2, range(2), step), 4))
    for expected_micro, micro in zip(expected, started_at_step, strict=True):
        assert (expected_micro.step, expected_micro.micro_index) == (micro.step, micro.micro_index)
        np.testing.assert_array_equal(expected_micro.examples, micro.examples)
        np.testing.assert_array_equal(expected_micro.epochs, micro.epochs)


@pytest.mark.parametrize("shard_sizes", [None, [2**20, 1], [1000, 2**20 - 999]])
@pytest.mark.parametrize("step", [1, 2**14 - 1, 2**14 + 3])  # the last micro-batch of the middle one spans two epochs
def test_micro_batches_of_large_data_can_be_started_at_any_step(shard_sizes, step):
    examples = 2**20 + 1
    micros = iterate_micro_batches(7, examples, 32, 2, range(2), step - 1, shard_sizes)
    later = iterate_micro_batches(7, examples, 32, 2, range(2), step, shard_sizes)
    for micro, later_micro in zip(islice(micros, 2, 6), later, strict=False):
        assert (micro.step, micro.micro_index) == (later_micro.step, later_micro.micro_index)
        np.testing.assert_array_equal(micro.examples, later_micro.examples)
        np.testing.assert_array_equal(micro.epochs, later_micro.epochs)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any), st.integers(1, 6), st.data())
def test_workers_share_the_order_of_sharded_data(shard_sizes, num_micro_batches, data):
    workers = data.draw(st.integers(1, num_micro_batches))
    examples, steps = sum(shard_sizes), 5
    pairs = read_example_order(examples, 3, num_micro_batches, workers, steps, shard_sizes=shard_sizes)
    assert pairs == read_example_order(examples, 3 * num_micro_batches, 1, 1, steps, shard_sizes=shard_sizes)
    epochs = len(pairs) // examples
    assert sorted(pairs[: epochs * examples]) == [(epoch, i) for epoch in range(epochs) for i in range(examples)]


@given(st.integers(1, 20), st.integers(1, 9), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=9))
def test_micro_batches_can_be_selected_in_any_order(examples, batch, places):
    order = MicroBatchOrder(7, examples, batch, 3)
    for step, micro_index in places:
        micro = order.select(step, micro_index)
        expected = next(iterate_micro_batches(7, examples, batch, 3, range(micro_index, 3), step))
        assert micro[:2] == expected[:2]
        np.testing.assert_array_equal(micro.examples, expected.examples)
        np.testing.assert_array_equal(micro.epochs, expected.epochs)


def test_later_steps_of_another_size_go_on_where_the_earlier_ones_ended():
    order, expected = MicroBatchOrder(7, 1000, 4, 3), MicroBatchOrder(7, 1000, 4, 1)
    assert order.global_batch == 12 and [order.seen_before(step) for step in (0, 2)] == [0, 24]
    order.resize_steps(5, seen=24, step=2, first_step=2)
    assert (order.global_batch, order.first_step) == (20, 2) and [order.seen_before(step) for step in (2, 4)] == [
        24,
        64,
    ]
    for step, micro_index in ((2, 0), (2, 4), (3, 1)):
        position = 6 + (step - 2) * 5 + micro_index
        np.testing.assert_array_equal(order.select(step, micro_index).examples, expected.select(position, 0).examples)


def test_micro_batches_are_read_in_groups():
    micros = list(islice(iterate_micro_batches(0, 50, 4, 2, range(2), 0), 5))
    groups = list(group_micro_batches(iter(micros), 2))
    assert [len(examples) for _, examples in groups] == [8, 8, 4]
    np.testing.assert_array_equal(groups[1][1], np.concatenate([micros[2].examples, micros[3].examples]))
    np.testing.assert_array_equal(groups[2][0], micros[4].epochs)


OWN = [
    ({}, [range(4), range(4, 9)]),
    ({"sync": "server"}, [range(4), range(4, 9)]),
    ({"sync": "local:2"}, [range(3), range(3, 9)]),
    ({"sync": "async:1"}, [range(3), range(3, 9)]),
    ({"compression": "int8"}, [range(3), range(3, 9)]),
]


@pytest.mark.parametrize(("options", "expected"), OWN)
def test_micro_batches_of_a_worker_stay_together_where_workers_differ(options, expected):
    config = TrainConfig(workload="digits", workers=3, grad_accumulation=3, **options)
    assert [list_own_micro_batches(config, rank, 2) for rank in range(2)] == expected


def test_no_more_processes_than_workers_that_differ():
    config = TrainConfig(workload="digits", workers=2, grad_accumulation=2, sync="local:2")
    assert list_own_micro_batches(config, 1, 2) == range(2, 4)
    with raises_code("option-conflict", "2 workers among 3 processes", "local:2", "--workers 3"):
        list_own_micro_batches(config, 2, 3)
    exact = TrainConfig(workload="digits", workers=2, grad_accumulation=2)
    assert list_own_micro_batches(exact, 2, 3) == range(2, 4)
