"""Closed forms of rates and staleness against the order in which servers apply pushes, on a simulated clock."""

import heapq
from itertools import count

import numpy as np
import pytest

from equipoise.parameter_store.order import Update, UpdateOrder
from equipoise.planning.parameter_servers.asynchronous_rate import (
    asynchronous_updates_per_second,
    free_staleness,
    mean_staleness,
)

STEPS = 300


def simulate(speeds, staleness):
    """Return gradients a second of workers with these seconds a gradient, and how many others each of them missed."""
    order, counter, moment, applied = UpdateOrder(staleness, len(speeds)), count(), 0.0, [0]
    order.begin_lap(0, STEPS * len(speeds))
    missed, arrivals = [], [(0.0, next(counter), worker, None) for worker in range(len(speeds))]
    while arrivals:
        moment, _, worker, ticket = heapq.heappop(arrivals)
        events = [] if ticket is None else order.on_push(worker, ticket)
        for event in [*events, *order.on_pull(worker)]:
            if isinstance(event, Update):
                missed += [applied[-1] - applied[push.version] for push in event.pushes]
                applied.append(applied[-1] + len(event.pushes))
            elif event.ticket is not None:
                heapq.heappush(arrivals, (moment + speeds[event.worker], next(counter), event.worker, event.ticket))
    return STEPS * len(speeds) / moment, float(np.mean(missed))


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
def test_mean_staleness_of_equal_workers_is_that_of_their_order(workers):
    for staleness in range(workers + 2):
        assert simulate((1.0,) * workers, staleness)[1] == pytest.approx(mean_staleness(workers, staleness), rel=0.02)


UNEQUAL = [(1.0, 1.0, 3.0), (1.0, 1.01, 1.02, 5.0), (0.3, 0.7), (1.0, 1.5, 2.2), (1.0, 1.0, 4.0, 4.0)]


@pytest.mark.parametrize("speeds", [*UNEQUAL, (1.0, 1.0, 1.0, 1.0, 2.0)])
def test_rates_of_unequal_workers_are_those_of_their_order(speeds):
    free = free_staleness(speeds)
    for staleness in (0, 1, 2, free - 1, free, free + 10):
        rate, missed = simulate(speeds, staleness)
        bound = asynchronous_updates_per_second(speeds, staleness=staleness)
        is_free = staleness == 0 or staleness >= free
        assert rate <= bound * 1.02 and rate >= bound * (0.97 if is_free else 0.75)
        assert missed <= mean_staleness(len(speeds), staleness) * 1.25 + 0.02
    assert missed == pytest.approx(len(speeds) - 1, rel=0.02)  # whatever their speeds, where nobody is held back
