"""Every algorithm, simulated in NumPy: all workers in one process, round by round."""

import math
from itertools import pairwise, product

import numpy as np
import pytest

from equipoise.errors import EquipoiseError
from equipoise.parallel.build_schedule import build_schedule
from equipoise.parallel.schedule import count_scratch_elements, count_sent_elements, split_evenly
from equipoise.registries.all_reduce_registry import (
    ALL_REDUCE_ALGORITHMS,
    list_runnable_algorithms,
    require_runnable_algorithm,
)

MAX_RANKS = 9


def list_settings(max_ranks=MAX_RANKS):
    """Return (algorithm, ranks, group_size) of every setting that can run."""
    return [
        (algorithm, ranks, group_size)
        for ranks in range(1, max_ranks + 1)
        for algorithm in list_runnable_algorithms(ranks)
        for group_size in (range(1, ranks + 1) if algorithm == "two-level" else [1])
        if ranks % group_size == 0
    ]


def build_all(algorithm, ranks, count, group_size):
    """Return the schedules of all workers."""
    return [build_schedule(algorithm, rank, ranks, count, group_size) for rank in range(ranks)]


def simulate(schedules, rows):
    """Return what each worker ends with: messages are matched by sender and receiver, as the network does."""
    rows = [row.copy() for row in rows]
    for parts in zip(*schedules, strict=True):
        mail = {
            (rank, send.peer): rows[rank][send.start : send.stop].copy()
            for rank, part in enumerate(parts)
            for send in part.sends
        }
        for rank, part in enumerate(parts):
            arrived = {receive.peer: mail.pop((receive.peer, rank)) for receive in part.receives}
            for receive in part.receives:
                target = rows[rank][receive.start : receive.stop]
                assert len(arrived[receive.peer]) == len(target)
                if not part.adds:
                    target[:] = arrived[receive.peer]
            if part.adds and arrived:
                arrived[rank] = target.copy()
                target[:] = 0
                for peer in sorted(arrived):
                    target += arrived[peer]
        assert not mail  # every message is received
    return rows


@pytest.mark.parametrize(("algorithm", "ranks", "group_size"), list_settings())
def test_every_worker_ends_with_the_same_bits_of_the_sum(algorithm, ranks, group_size):
    rng = np.random.default_rng(ranks)
    for count in {0, 1, ranks - 1, ranks + 1, 1000}:
        schedules = build_all(algorithm, ranks, count, group_size)
        integers = rng.integers(-(2**40), 2**40, (ranks, count)).astype(np.float64)
        assert all(np.array_equal(row, integers.sum(0)) for row in simulate(schedules, integers))
        numbers = rng.standard_normal((ranks, count)).astype(np.float32)
        first, *others = simulate(schedules, numbers)
        assert all(np.array_equal(first, other) for other in others)
        bound = ranks * np.finfo(np.float32).eps * np.abs(numbers).sum(0)
        assert (np.abs(first - numbers.sum(0, dtype=np.float64)) <= bound).all()


@pytest.mark.parametrize(
    ("algorithm", "ranks"),
    [pytest.param(name, p, marks=() if p in (3, 4) else pytest.mark.slow) for name, p, g in list_settings() if g == 1],
)
def test_a_million_elements_are_all_summed(algorithm, ranks):
    rows = np.arange(ranks)[:, None] + np.arange(1_000_000, dtype=np.float32)
    result = simulate(build_all(algorithm, ranks, rows.shape[1], 1), rows)
    assert all(np.array_equal(row, rows.sum(0)) for row in result)


@pytest.mark.parametrize(("algorithm", "ranks", "group_size"), list_settings())
def test_rounds_can_run_in_place(algorithm, ranks, group_size):
    count = 100
    for schedule in build_all(algorithm, ranks, count, group_size):
        for part in schedule:
            spans = {(receive.start, receive.stop) for receive in part.receives}
            assert not part.adds or len(spans) <= 1  # what is added goes to one place, so that its order is clear
            if not part.adds:  # what arrives at once neither overwrites what is still being sent, nor each other
                written = sorted([*spans, *{(send.start, send.stop) for send in part.sends}])
                assert all(stop <= start for (_, stop), (start, _) in pairwise(written))
            assert all(0 <= start <= stop <= count for start, stop in spans)


def sent_and_rounds(algorithm, ranks, count, group_size=1):
    """Return the elements that each worker sends, and the number of rounds."""
    schedules = build_all(algorithm, ranks, count, group_size)
    assert len({len(schedule) for schedule in schedules}) == 1
    return [count_sent_elements(schedule) for schedule in schedules], len(schedules[0])


@pytest.mark.parametrize("ranks", range(2, MAX_RANKS + 1))
def test_bytes_and_rounds_have_their_closed_forms(ranks):
    count = 5040  # divisible by all numbers up to 9
    fair_share = 2 * (ranks - 1) * count // ranks
    levels = math.ceil(math.log2(ranks))
    assert sent_and_rounds("ring", ranks, count) == ([fair_share] * ranks, 2 * (ranks - 1))
    assert sent_and_rounds("direct", ranks, count) == ([(ranks - 1) * count] * ranks, 1)
    assert sent_and_rounds("root", ranks, count) == ([(ranks - 1) * count, *[count] * (ranks - 1)], 2)
    assert sent_and_rounds("sharded-root", ranks, count) == ([fair_share] * ranks, 2)
    sent, rounds = sent_and_rounds("tree", ranks, count)
    assert (sent[0], sum(sent), rounds) == (levels * count, 2 * (ranks - 1) * count, 2 * levels)
    if ranks.bit_count() == 1:
        assert sent_and_rounds("doubling", ranks, count) == ([levels * count] * ranks, levels)
        assert sent_and_rounds("halving-doubling", ranks, count) == ([fair_share] * ranks, 2 * levels)
        assert sent_and_rounds("binary-blocks", ranks, count) == ([fair_share] * ranks, 2 * levels)
    else:
        block = 1 << ranks.bit_length() - 1
        sent, rounds = sent_and_rounds("binary-blocks", ranks, count)
        assert rounds == 2 * (levels - 1) + 2
        shares = [2 * (block - 1) * count // block + count] * (ranks - block)
        shares += [2 * (block - 1) * count // block] * (2 * block - ranks)
        assert sent == shares + [count] * (ranks - block)


@pytest.mark.parametrize(("nodes", "group_size"), [(2, 2), (2, 4), (3, 2), (4, 2), (1, 5), (5, 1)])
def test_two_levels_send_little_between_nodes(nodes, group_size):
    count, ranks = 5040, nodes * group_size
    schedules = build_all("two-level", ranks, count, group_size)
    inside, between = [0] * nodes, [0] * nodes
    for rank, schedule in enumerate(schedules):
        for send in (send for part in schedule for send in part.sends):
            node = rank // group_size
            level = inside if send.peer // group_size == node else between
            level[node] += send.stop - send.start
    assert {len(schedule) for schedule in schedules} == {2 * (group_size - 1) + 2 * (nodes - 1)}
    assert inside == [2 * (group_size - 1) * count] * nodes
    assert between == [2 * (nodes - 1) * count // nodes] * nodes


@pytest.mark.parametrize("name", ["doubling", "halving-doubling"])
def test_algorithm_that_needs_a_power_of_two_is_refused_on_others(name):
    for workers in (1, 2, 4, 64):
        require_runnable_algorithm(name, workers)
    for workers in (3, 6, 63):
        with pytest.raises(EquipoiseError) as refusal:
            require_runnable_algorithm(name, workers)
        assert refusal.value.code == "all-reduce-unusable"
        assert all(other in refusal.value.remedy for other in list_runnable_algorithms(workers))


@pytest.mark.parametrize("group_size", [None, 3])
def test_two_levels_are_refused_on_unequal_nodes(group_size):
    with pytest.raises(EquipoiseError) as refusal:
        build_schedule("two-level", 0, 4, 100, group_size)
    assert refusal.value.code == "all-reduce-unusable"


def test_one_worker_sends_nothing():
    assert all(build_schedule(name, 0, 1, 100, 1) == [] for name in ALL_REDUCE_ALGORITHMS)


def test_parts_differ_by_one_at_most():
    for start, stop, parts in product((0, 7), (7, 8, 30), (1, 3, 9)):
        bounds = split_evenly(start, stop, parts)
        assert bounds[0] == start and bounds[-1] == stop and len(bounds) == parts + 1
        sizes = np.diff(bounds)
        assert sizes.max() - sizes.min() <= 1 and sizes.min() >= 0


def test_scratch_is_what_waits_to_be_added():
    assert count_scratch_elements(build_schedule("direct", 0, 4, 100)) == 300
    assert count_scratch_elements(build_schedule("ring", 0, 4, 100)) == 25
    assert count_scratch_elements(build_schedule("root", 1, 4, 100)) == 0
