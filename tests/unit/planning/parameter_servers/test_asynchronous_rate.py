from itertools import pairwise

import numpy as np
import pytest

from equipoise.planning.exchanges.exchange_time import all_reduce_seconds
from equipoise.planning.parameter_servers.asynchronous_rate import (
    StoreLink,
    asynchronous_step_seconds,
    asynchronous_updates_per_second,
    free_staleness,
    mean_staleness,
)
from equipoise.planning.parameter_servers.server_cost import server_cost

QUOTAS = (0.6, 0.6, 0.2)
SPEEDS = tuple(0.6 / quota for quota in QUOTAS)  # seconds a step
LINK = StoreLink(1e7, 1e-3, 4e-8)


def draw_speeds():
    rng = np.random.default_rng(0)
    return [tuple(rng.uniform(0.1, 3.0, size)) for size in (1, 2, 2, 3, 4, 5, 6)]


def test_workers_that_wait_for_none_are_as_fast_as_their_sum():
    assert asynchronous_updates_per_second(SPEEDS) == pytest.approx(1 + 1 + 1 / 3)
    assert asynchronous_step_seconds(SPEEDS) == pytest.approx(3 / (7 / 3))
    assert asynchronous_step_seconds((2.0,) * 5) == pytest.approx(2.0)
    assert asynchronous_updates_per_second((0.5,), 0, LINK) == 2  # a worker alone sends nothing


def test_a_bound_on_staleness_lets_fast_workers_wait():
    rates = [asynchronous_updates_per_second(SPEEDS, staleness=bound) for bound in range(6)]
    assert rates == pytest.approx([3 / 3, 4 / 3, 5 / 3, 6 / 3, 7 / 3, 7 / 3])
    assert free_staleness(SPEEDS) == 6 and free_staleness((1.0, 1.0)) == 1 and free_staleness((1.0,)) == 0


@pytest.mark.parametrize("speeds", draw_speeds())
def test_the_bound_that_holds_nobody_back_changes_no_rate(speeds):
    free = asynchronous_updates_per_second(speeds)
    assert asynchronous_updates_per_second(speeds, staleness=free_staleness(speeds)) == pytest.approx(free)


@pytest.mark.parametrize("speeds", draw_speeds())
def test_asynchronous_workers_are_never_slower_than_synchronous_ones(speeds):
    for servers in range(len(speeds) + 1):
        step = max(speeds) + all_reduce_seconds(server_cost(len(speeds), servers, 1e7), local=(1e-3, 4e-8))
        for staleness in (0, 1, 3, None):
            assert asynchronous_step_seconds(speeds, servers, LINK, staleness=staleness) <= step * (1 + 1e-12)


def test_better_links_and_more_servers_are_never_slower():
    def seconds(beta=4e-8, alpha=1e-3, servers=0, share=None):
        link = StoreLink(1e7, alpha, beta)
        return asynchronous_step_seconds(SPEEDS, servers, link, staleness=4, largest_share=share)

    for times in (
        [seconds(beta=beta) for beta in (1e-5, 1e-6, 1e-7, 1e-8, 0.0)],
        [seconds(alpha=alpha) for alpha in (1.0, 0.1, 0.0)],
        [seconds(beta=1e-6, servers=servers) for servers in (1, 2, 3)],
        [seconds(beta=1e-6, servers=2, share=share) for share in (1.0, 0.75, 0.5)],
    ):
        assert all(slower >= faster for slower, faster in pairwise(times)) and times[0] > times[-1]


def test_the_link_of_the_busiest_server_saturates():
    rate = asynchronous_updates_per_second((1e-3,) * 4, 1, StoreLink(1e7, 0.0, 4e-8))
    assert rate == pytest.approx(4 / (3 * 2 * 1e7 * 4e-8))  # three of four workers pass its link, both ways
    assert asynchronous_updates_per_second((1e-3,) * 4, 0, StoreLink(1e7, 0.0, 4e-8)) > 2 * rate


def test_mean_staleness_of_equal_workers():
    assert [mean_staleness(4, bound) for bound in (0, 1, 2, 3, 9)] == [0.0, 1.5, 2.5, 3.0, 3.0]
    assert mean_staleness(1, 5) == 0
