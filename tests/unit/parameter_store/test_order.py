import heapq
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.parameter_store.order import Push, Reply, Update, UpdateOrder


def run_lap(order, seconds, first_ticket, end_ticket, pull_delays=None):
    """Run a lap of workers that take `seconds` a ticket each; return its updates and the replies."""
    events = list(order.begin_lap(first_ticket, end_ticket))
    delays = pull_delays or [0.0] * len(seconds)
    agenda = [(delay, worker, worker, None) for worker, delay in enumerate(delays)]  # pull, or push of a ticket
    heapq.heapify(agenda)
    done, position, counter = set(), 0, count(len(seconds))  # what ends at the same time is taken as it began
    while len(done) < len(seconds):
        time, _, worker, ticket = heapq.heappop(agenda)  # an empty agenda would be a deadlock
        if ticket is not None:
            events += order.on_push(worker, ticket)
        events += order.on_pull(worker)
        for event in events[position:]:
            if isinstance(event, Reply) and event.ticket is None:
                done.add(event.worker)
            elif isinstance(event, Reply):
                heapq.heappush(agenda, (time + seconds[event.worker], next(counter), event.worker, event.ticket))
        position = len(events)
    return [event for event in events if isinstance(event, Update)], [e for e in events if isinstance(e, Reply)]


worlds = st.integers(1, 6).flatmap(
    lambda tickets_per_step: st.tuples(
        st.just(tickets_per_step),
        st.lists(st.floats(0.01, 10.0), min_size=1, max_size=tickets_per_step),
        st.integers(0, 8),
        st.integers(0, 6),
    )
)


@given(worlds, st.data())
def test_every_ticket_is_in_one_update_and_never_too_stale(world, data):
    tickets_per_step, seconds, staleness, steps = world
    delays = data.draw(st.lists(st.floats(0.0, 5.0), min_size=len(seconds), max_size=len(seconds)))
    order = UpdateOrder(staleness, tickets_per_step)
    for lap in range(2):
        first, end = lap * steps * tickets_per_step, (lap + 1) * steps * tickets_per_step
        updates, replies = run_lap(order, seconds, first, end, delays)
        pushes = [push for update in updates for push in update.pushes]
        assert sorted(push.ticket for push in pushes) == list(range(first, end))
        for version, update in enumerate(updates):
            assert list(update.pushes) == sorted(update.pushes)
            assert all(0 <= version - push.version <= staleness for push in update.pushes)
        assert sorted(reply.worker for reply in replies if reply.ticket is None) == list(range(len(seconds)))
        assert all(reply.version == len(updates) for reply in replies if reply.ticket is None)
        assert {(push.ticket, push.version, push.worker) for push in pushes} == {
            (reply.ticket, reply.version, reply.worker) for reply in replies if reply.ticket is not None
        }


@given(st.integers(1, 6), st.integers(0, 8), st.integers(1, 6), st.data())
def test_workers_of_equal_speed_compute_equal_shares_within_one(tickets_per_step, staleness, steps, data):
    workers = data.draw(st.integers(1, tickets_per_step))
    updates, _ = run_lap(UpdateOrder(staleness, tickets_per_step), [1.0] * workers, 0, steps * tickets_per_step)
    shares = [sum(p.worker == worker for update in updates for p in update.pushes) for worker in range(workers)]
    assert max(shares) - min(shares) <= 1


@given(worlds)
def test_updates_with_no_staleness_are_whole_steps(world):
    tickets_per_step, seconds, _, steps = world
    updates, _ = run_lap(UpdateOrder(0, tickets_per_step), seconds, 0, steps * tickets_per_step)
    assert [[push.ticket for push in update.pushes] for update in updates] == [
        list(range(step * tickets_per_step, (step + 1) * tickets_per_step)) for step in range(steps)
    ]
    assert all(push.version == version for version, update in enumerate(updates) for push in update.pushes)


@given(worlds)
def test_pushes_are_applied_one_by_one_where_any_staleness_is_allowed(world):
    tickets_per_step, seconds, _, steps = world
    updates, _ = run_lap(UpdateOrder(10**6, tickets_per_step), seconds, 0, steps * tickets_per_step)
    assert all(len(update.pushes) == 1 for update in updates)


def test_a_slow_worker_holds_others_up_only_at_the_bound_and_is_applied_with_them():
    order = UpdateOrder(2, 3)
    order.begin_lap(0, 9)
    assert [order.on_pull(worker) for worker in (0, 1, 2)] == [[Reply(worker, worker, 0)] for worker in (0, 1, 2)]
    assert order.on_push(0, 0) == [Update((Push(0, 0, 0),))]
    assert order.on_pull(0) == [Reply(0, 3, 1)]
    assert order.on_push(1, 1) == [Update((Push(1, 0, 1),))]
    assert order.on_pull(1) == [Reply(1, 4, 2)]
    assert order.on_push(1, 4) == []  # held: a third update would make the gradient of worker 2 three updates old
    assert order.on_pull(1) == []
    assert order.on_push(0, 3) == []
    assert order.on_push(2, 2) == [
        Update((Push(2, 0, 2), Push(3, 1, 0), Push(4, 2, 1))),
        Reply(1, 5, 3),
    ]
    assert order.on_pull(2) == [Reply(2, 6, 3)]


def test_workers_that_have_nothing_left_to_compute_wait_for_the_last_update():
    order = UpdateOrder(4, 2)
    order.begin_lap(2, 4)
    order.on_pull(0), order.on_pull(1)
    assert order.on_push(0, 2) == [Update((Push(2, 0, 0),))]
    assert order.on_pull(0) == []
    assert order.on_push(1, 3) == [Update((Push(3, 0, 1),)), Reply(0, None, 2)]
    assert order.on_pull(0) == []  # of the next lap
    assert order.on_pull(1) == [Reply(1, None, 2)]
    assert order.begin_lap(4, 6) == [Reply(0, 4, 0)]


def test_a_worker_that_comes_late_is_told_that_the_lap_is_over():
    order = UpdateOrder(1, 2)
    order.begin_lap(0, 2)
    order.on_pull(0)
    assert order.on_push(0, 0) == [Update((Push(0, 0, 0),))]
    assert order.on_pull(0) == [Reply(0, 1, 1)]
    assert order.on_push(0, 1) == [Update((Push(1, 1, 0),))]
    assert order.on_pull(1) == [Reply(1, None, 2)]


def test_what_no_worker_can_send_is_refused():
    order = UpdateOrder(1, 2)
    with pytest.raises(ValueError, match="not whole steps"):
        order.begin_lap(0, 3)
    order.begin_lap(0, 2)
    order.on_pull(0)
    with pytest.raises(ValueError, match="ticket 1, which it has not been given"):
        order.on_push(0, 1)
    with pytest.raises(ValueError, match="before it has pushed"):
        order.on_pull(0)
    with pytest.raises(RuntimeError, match="is not over"):
        order.begin_lap(2, 4)
