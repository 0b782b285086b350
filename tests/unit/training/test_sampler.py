from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.training.sampler import iterate_micro_batches, rank_micro_batches


@given(st.integers(1, 40), st.data())
def test_workers_share_all_places_almost_equally(places, data):
    workers = data.draw(st.integers(1, places))
    shares = [rank_micro_batches(places, rank, workers) for rank in range(workers)]
    assert [place for mine in shares for place in mine] == list(range(places))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_more_workers_than_places_is_refused():
    with pytest.raises(ValueError, match="3 workers cannot share 2 micro-batches"):
        rank_micro_batches(2, 0, 3)


def line(examples, batch, places, workers, steps, seed=0):
    """(epoch, example) of the first steps, in the order of places."""
    seen = {}
    for rank in range(workers):
        mine = rank_micro_batches(places, rank, workers)
        for micro in islice(iterate_micro_batches(seed, examples, batch, places, mine, 0), steps * len(mine)):
            seen[micro.step, micro.micro_index] = list(zip(micro.epochs, micro.examples, strict=True))
    return [pair for key in sorted(seen) for pair in seen[key]]


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 6), st.data())
def test_any_number_of_workers_sees_the_same_examples_at_the_same_step(examples, batch, places, data):
    workers = data.draw(st.integers(1, places))
    assert line(examples, batch, places, workers, 5) == line(examples, batch * places, 1, 1, 5)


@given(st.integers(1, 30), st.integers(1, 70))
def test_every_epoch_shows_every_example_once_whatever_the_batch(examples, batch):
    steps = -(-3 * examples // batch)
    pairs = line(examples, batch, 1, 1, steps)
    assert sorted(pairs[: 3 * examples]) == [(epoch, i) for epoch in range(3) for i in range(examples)]


@given(st.integers(1, 20), st.integers(1, 9), st.integers(0, 12))
def test_a_stream_can_be_entered_at_any_step(examples, batch, step):
    whole = list(islice(iterate_micro_batches(7, examples, batch, 2, range(2), 0), 2 * step + 4))[2 * step :]
    later = list(islice(iterate_micro_batches(7, examples, batch, 2, range(2), step), 4))
    for a, b in zip(whole, later, strict=True):
        assert (a.step, a.micro_index) == (b.step, b.micro_index)
        np.testing.assert_array_equal(a.examples, b.examples)
        np.testing.assert_array_equal(a.epochs, b.epochs)
