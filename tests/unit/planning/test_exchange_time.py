import math

import pytest

from equipoise.errors import EquipoiseError
from equipoise.parallel.build_schedule import build_schedule
from equipoise.parallel.schedule import count_sent_elements
from equipoise.planning.exchanges.exchange_time import (
    SEND_BUFFER_BYTES,
    all_reduce_cost,
    all_reduce_seconds,
    parameter_server_seconds,
)
from equipoise.planning.step_time_model import ring_all_reduce_seconds
from equipoise.registries.all_reduce_registry import ALL_REDUCE_ALGORITHMS, list_runnable_algorithms


def sent_by_pairs(workers, size):
    """Return what each worker sends in binary blocks, counted message by message."""
    block = 1 << workers.bit_length() - 1
    sent = [0.0] * workers
    for rank in range(block):
        part = size
        while part > size / block:
            part /= 2
            sent[rank] += 2 * part  # halving, and doubling back
    for other in range(block, workers):
        sent[other] += size
        sent[other - block] += size
    return sent


@pytest.mark.parametrize("workers", range(2, 10))
def test_bytes_are_those_of_the_messages(workers):
    size, levels = 5040.0, math.ceil(math.log2(workers))
    share = 2 * (workers - 1) / workers * size
    sends = {
        "ring": [share] * workers,
        "tree": [size * levels] + [(2 * (workers - 1) - levels) * size / (workers - 1)] * (workers - 1),
        "direct": [(workers - 1) * size] * workers,
        "root": [(workers - 1) * size] + [size] * (workers - 1),
        "sharded-root": [share] * workers,
        "binary-blocks": sent_by_pairs(workers, size),
    }
    for name, sent in sends.items():
        cost = all_reduce_cost(name, workers, size)
        assert cost.mean_sent_bytes == pytest.approx(sum(sent) / workers), name
        assert cost.max_sent_bytes == pytest.approx(max(sent)), name
    power_of_two = workers & (workers - 1) == 0
    rounds = {"ring": 2 * (workers - 1), "tree": 2 * levels, "direct": 1, "root": 2, "sharded-root": 2}
    rounds["binary-blocks"] = 2 * levels if power_of_two else 2 * (levels - 1) + 2
    assert rounds == {name: all_reduce_cost(name, workers, size).rounds for name in rounds}


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("workers", [2, 4, 6, 8])
def test_closed_forms_are_those_of_the_schedules_that_run(workers, nodes):
    count = 5040
    for name in list_runnable_algorithms(workers):
        schedules = [build_schedule(name, rank, workers, count, workers // nodes) for rank in range(workers)]
        sent = [count_sent_elements(schedule) for schedule in schedules]
        cost = all_reduce_cost(name, workers, count, nodes)
        assert (cost.rounds, cost.max_sent_bytes) == (len(schedules[0]), pytest.approx(max(sent))), name
        assert cost.mean_sent_bytes == pytest.approx(sum(sent) / workers), name


def find_last_arrival(rank, start, children):
    """Return when the last worker below one has a message, if those to its children share its link."""
    arrived = start + len(children[rank])
    return max((find_last_arrival(child, arrived, children) for child in children[rank]), default=start)


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 7, 8, 13, 16, 31])
def test_messages_of_a_tree_share_a_link_as_far_as_the_send_buffer_takes_them(workers):
    schedules = [build_schedule("tree", rank, workers, 8) for rank in range(workers)]
    levels = len(schedules[0]) // 2
    children = [[m.peer for part in schedule[levels:] for m in part.sends] for schedule in schedules]
    shared = levels + find_last_arrival(0, 0, children)
    assert all_reduce_cost("tree", workers, 1000).local.serial_bytes == 1000 * shared
    large = 100 * SEND_BUFFER_BYTES
    excess = (shared - 2 * levels) * SEND_BUFFER_BYTES
    assert all_reduce_cost("tree", workers, large).local.serial_bytes == 2 * levels * large + excess


def test_messages_whose_receivers_are_ready_take_half_of_a_delay():
    cost = all_reduce_cost("binary-blocks", 5, 0.0).local
    assert (cost.rounds, cost.delays, cost.seconds(1.0, 1.0)) == (6, 5.0, 5.0)
    assert all_reduce_cost("binary-blocks", 4, 0.0).local.delays == 4


def test_seconds_of_160_megabytes_over_four_workers():
    def seconds(name, workers=4, nodes=1):
        return all_reduce_seconds(all_reduce_cost(name, workers, 160e6, nodes), local=(0.0, 1 / 16e9))

    assert seconds("root") == pytest.approx(0.060)
    assert seconds("sharded-root") == pytest.approx(0.015)
    assert parameter_server_seconds(4, 1, 160e6, 0.0, 1 / 16e9) == pytest.approx(0.080)
    assert parameter_server_seconds(4, 4, 160e6, 0.0, 1 / 16e9, full_duplex=True) == pytest.approx(0.010)
    assert seconds("ring") == pytest.approx(float(ring_all_reduce_seconds(4, 0.0, 0.010)))
    assert seconds("halving-doubling") == seconds("ring") == pytest.approx(0.015)
    assert seconds("doubling") == pytest.approx(0.020)


def test_two_levels_are_a_ring_inside_and_one_between():
    inside, between = (1e-5, 1e-10), (1e-3, 4e-8)
    for nodes, group in ((2, 2), (3, 2), (1, 4), (4, 1)):
        seconds = all_reduce_seconds(
            all_reduce_cost("two-level", nodes * group, 1e6, nodes), local=inside, between=between
        )
        rings = [ring_all_reduce_seconds(group, inside[0], 1e6 * inside[1])]
        rings += [ring_all_reduce_seconds(nodes, between[0], 1e6 * between[1])]
        assert seconds == pytest.approx(float(sum(rings)))


def test_more_delay_never_favours_more_rounds():
    costs = {name: all_reduce_cost(name, 8, 1e6, 8) for name in ALL_REDUCE_ALGORITHMS}
    rounds = []
    for alpha in (0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1):
        best = min(costs, key=lambda name: all_reduce_seconds(costs[name], between=(alpha, 1e-8)))
        rounds.append(costs[best].rounds)
    assert rounds == sorted(rounds, reverse=True) and rounds[0] > rounds[-1]


@pytest.mark.parametrize("name", ALL_REDUCE_ALGORITHMS)
def test_one_worker_sends_nothing(name):
    cost = all_reduce_cost(name, 1, 1e6)
    assert (cost.rounds, cost.max_sent_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("star", 4, 1.0), "option-choice"),
        (("ring", 4, -1.0), "option-range"),
        (("ring", 2, 1.0, 3), "option-range"),
        (("doubling", 6, 1.0), "option-range"),
        (("two-level", 5, 1.0, 2), "option-range"),
    ],
)
def test_impossible_sums_are_refused(arguments, code):
    with pytest.raises(EquipoiseError) as refusal:
        all_reduce_cost(*arguments)
    assert refusal.value.code == code
