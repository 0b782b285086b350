"""Order of --sync server: whatever arrives first, an update has the pushes of all workers."""

import random

import pytest

from equipoise.parameter_store.lockstep_order import LockstepOrder
from equipoise.parameter_store.order import Push, Reply, Update


@pytest.mark.parametrize("seed", range(20))
def test_updates_do_not_depend_on_arrivals(seed):
    generator = random.Random(seed)
    workers, steps = generator.randint(1, 6), 5
    order = LockstepOrder(workers)
    assert order.begin_lap(0, workers * steps) == []
    next_step, updates, versions = [0] * workers, [], {}
    may_push = set(range(workers))
    while may_push:
        worker = generator.choice(sorted(may_push))
        may_push.remove(worker)
        ticket = next_step[worker] * workers + worker
        for event in [*order.on_push(worker, ticket), *order.on_pull(worker)]:
            if isinstance(event, Update):
                updates.append(event)
            else:
                next_step[event.worker] += 1
                versions[event.worker] = event.version
                if next_step[event.worker] < steps:
                    may_push.add(event.worker)
    assert updates == [
        Update(tuple(Push(step * workers + worker, step, worker) for worker in range(workers))) for step in range(steps)
    ]
    assert versions == dict.fromkeys(range(workers), steps)


def test_a_worker_may_pull_before_it_pushes_but_not_push_twice():
    order = LockstepOrder(2)
    assert order.on_pull(1) == [Reply(1, None, 0)]
    assert order.on_push(1, 1) == [] and order.on_pull(1) == []
    with pytest.raises(ValueError, match="before its last push"):
        order.on_push(1, 3)
