"""Clock of workers that are only simulated: it says in which order their pulls and pushes would arrive."""

import heapq
from collections.abc import Sequence
from itertools import count

from equipoise.parameter_store.order import Reply, Update, UpdateOrder


def simulate_lap(
    order: UpdateOrder, first_ticket: int, end_ticket: int, seconds_per_ticket: Sequence[float]
) -> list[Update]:
    """Return the updates of a lap of workers that start together, each with its own constant speed.

    Messages take no time. What ends at the same moment arrives in the order in which it began.
    """
    order.begin_lap(first_ticket, end_ticket)
    updates: list[Update] = []
    counter = count()
    arrivals: list[tuple[float, int, int, int | None]] = [
        (0.0, next(counter), worker, None) for worker in range(len(seconds_per_ticket))
    ]  # moment, number, worker, and the ticket that it pushes if it has one
    while arrivals:
        moment, _, worker, ticket = heapq.heappop(arrivals)
        events = [] if ticket is None else order.on_push(worker, ticket)
        for event in [*events, *order.on_pull(worker)]:
            if isinstance(event, Update):
                updates.append(event)
            elif isinstance(event, Reply) and event.ticket is not None:
                end = moment + seconds_per_ticket[event.worker]
                heapq.heappush(arrivals, (end, next(counter), event.worker, event.ticket))
    return updates
