"""Parameter store over real messages: one order for all servers, and errors that reach every worker."""

import gc
import os
import signal
import threading
import time
from multiprocessing import get_context

import pytest
import torch
import torch.distributed as dist
from torch import nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.parameter_store.lockstep_order import LockstepOrder
from equipoise.parameter_store.order import Update, UpdateOrder
from equipoise.parameter_store.servers.receivers import THREAD_NAME
from equipoise.parameter_store.servers.server_messages import LapStart
from equipoise.parameter_store.store import ParameterStore
from tests.support.gloo import run_with_gloo

CONFIG = TrainConfig(workload="digits", workers=3).with_defaults()
STEPS = 4  # global batches of a lap


@pytest.fixture(scope="module")
def rendezvous_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("gloo")


def build_parameters():
    """Return parameters of which one is larger than all the others, and one has another memory layout."""
    generator = torch.Generator().manual_seed(3)
    shapes = {"first.weight": (4, 3), "first.bias": (4,), "embedding": (50, 4), "last": (2, 5)}
    values = {name: torch.rand(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    values["last"] = values["last"].t().contiguous().t()
    return {name: nn.Parameter(value) for name, value in values.items()}


def compute_gradients(parameters, ticket):
    """Return gradients that depend on the weights and the ticket."""
    return [torch.sin(value.detach() * (1 + ticket % 5)) for value in parameters.values()]


def lr_of_update(update):
    return 0.01 * len(update.pushes) / CONFIG.workers


class RecordedOrder(UpdateOrder):
    """Order that keeps its updates."""

    def __init__(self, staleness):
        super().__init__(staleness, CONFIG.workers)
        self.updates = []

    def on_push(self, worker, ticket):
        events = super().on_push(worker, ticket)
        self.updates += [event for event in events if isinstance(event, Update)]
        return events


def run_laps(staleness, servers):
    """Train two laps; return the weights, the updates of each lap, the tickets of this worker and a state."""
    parameters, orders = build_parameters(), []

    def build_order():
        orders.append(RecordedOrder(staleness))
        return orders[0]

    store = ParameterStore(
        CONFIG,
        parameters,
        {},
        worker_ranks=range(dist.get_world_size()),
        servers=servers,
        build_order=build_order,
        is_asynchronous=True,
    )
    laps, own_tickets = [], []
    for lap in range(2):
        first = lap * STEPS * CONFIG.workers
        store.begin_lap(LapStart(first, first + STEPS * CONFIG.workers, lr_of_update))
        while (pulled := store.client.pull()).ticket is not None:
            own_tickets.append(pulled.ticket)
            store.client.push(pulled.ticket, compute_gradients(parameters, pulled.ticket))
        dist.barrier()
        laps += [order.updates for order in orders]
        for order in orders:
            order.updates = []
    state = store.collect_optimizer_state()
    weights = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    dist.barrier()
    return weights, laps, own_tickets, {name: value.clone() for name, value in state.items()}


def replay(laps):
    """Return the weights and the state of the optimizer that follow from the updates of laps, in one process."""
    parameters = build_parameters()
    optimizer = RunOptimizer(CONFIG, parameters)
    for updates in laps:
        versions = [[value.detach().clone() for value in parameters.values()]]
        for update in updates:
            sums = None
            for push in update.pushes:
                at = dict(zip(parameters, versions[push.version], strict=True))
                own = compute_gradients({name: nn.Parameter(value) for name, value in at.items()}, push.ticket)
                sums = own if sums is None else [total + value for total, value in zip(sums, own, strict=True)]
            for parameter, total in zip(parameters.values(), sums, strict=True):
                parameter.grad = total / len(update.pushes)
            optimizer.step(lr_of_update(update))
            versions.append([value.detach().clone() for value in parameters.values()])
    return {name: value.detach() for name, value in parameters.items()}, optimizer.state_dict()


def run_asynchronously(cases):
    return [run_laps(*case) for case in cases]


def test_all_servers_apply_one_order_and_the_weights_follow_from_it(rendezvous_folder):
    cases = [(staleness, servers) for staleness in (0, 1, 4) for servers in (1, 3)]
    results = run_with_gloo(3, rendezvous_folder, run_asynchronously, cases)
    for index, (staleness, _) in enumerate(cases):
        weights, laps, _, state = results[0][index]
        assert len(laps) == 2
        tickets = [push.ticket for updates in laps for update in updates for push in update.pushes]
        assert sorted(tickets) == list(range(2 * STEPS * CONFIG.workers))
        stale = [at - push.version for updates in laps for at, update in enumerate(updates) for push in update.pushes]
        assert max(stale) <= staleness
        assert sorted(ticket for result in results for ticket in result[index][2]) == sorted(tickets)
        expected, expected_state = replay(laps)
        for other_weights, _, _, other_state in (result[index] for result in results):
            assert all(torch.equal(other_weights[name], value) for name, value in weights.items())
            assert other_state.keys() == state.keys()
        assert all(torch.allclose(weights[name], value, rtol=1e-15, atol=0) for name, value in expected.items())
        assert state.keys() == expected_state.keys()
        assert all(torch.allclose(state[name], value, rtol=1e-13) for name, value in expected_state.items())


def open_lockstep_store(servers):
    parameters = build_parameters()
    processes = dist.get_world_size()
    store = ParameterStore(
        CONFIG,
        parameters,
        {},
        worker_ranks=range(processes),
        servers=servers,
        build_order=lambda: LockstepOrder(processes),
        is_asynchronous=False,
    )
    return store, parameters


def count_store_threads():
    return sum(thread.name == THREAD_NAME for thread in threading.enumerate())


def open_and_drop_stores():
    """Use several stores, one after the other and two at once; return the threads meanwhile and at the end."""
    counts = []
    for _ in range(3):
        store, parameters = open_lockstep_store(2)
        other, _ = open_lockstep_store(1)
        store.begin_lap(LapStart(0, 100, lr_of_update))
        store.client.push(dist.get_rank(), compute_gradients(parameters, 0))
        store.client.pull()
        counts.append(count_store_threads())
        dist.barrier()  # no process closes its stores before all have counted
        del store, other, parameters
    gc.collect()
    dist.barrier()
    end = time.monotonic() + 30
    while count_store_threads() and time.monotonic() < end:
        time.sleep(0.01)
    return counts, count_store_threads()


def test_threads_end_with_their_store(rendezvous_folder):
    results = run_with_gloo(3, rendezvous_folder, open_and_drop_stores)
    assert [after for _, after in results] == [0, 0, 0]
    assert min(results[0][0]) >= 6 and min(results[1][0]) >= 3  # a server's thread, and one for each other process


def fail_in_an_update(_):
    raise ArithmeticError("planted")


def push_to_a_failing_server():
    """Return what a worker sees of an error in the thread of a server, and of a request for its state."""
    store, parameters = open_lockstep_store(1)
    store.begin_lap(LapStart(0, 100, fail_in_an_update))
    store.client.push(dist.get_rank(), compute_gradients(parameters, 0))
    messages = []
    for call in (store.client.pull, store.collect_optimizer_state):
        try:
            call()
        except (RuntimeError, ArithmeticError) as error:
            messages.append(str(error))
    dist.barrier()
    return messages


def test_error_of_a_server_reaches_every_worker(rendezvous_folder):
    local, *others = run_with_gloo(3, rendezvous_folder, push_to_a_failing_server)
    assert local == ["the parameter server has failed: planted", "planted"]
    assert others == [["the parameter server beside worker 0 has failed; its process says why"] * 2] * 2


def train_until_one_dies(rank, folder, victim):
    """Push and pull until another worker is gone, and write down what that looks like."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous-{victim}", rank=rank, world_size=3)
    store, parameters = open_lockstep_store(2)
    store.begin_lap(LapStart(0, 10**9, lr_of_update))
    try:
        for step in range(10**6):
            store.client.push(3 * step + rank, compute_gradients(parameters, step))
            store.client.pull()
            if rank == victim and step == 20:
                os.kill(os.getpid(), signal.SIGKILL)
    except RuntimeError as error:
        (folder / f"error-{victim}-{rank}").write_text(str(error))
    os._exit(0)


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.thorough]), 2])
def test_workers_notice_at_once_that_one_has_died(tmp_path, victim):
    context = get_context("forkserver")
    processes = [context.Process(target=train_until_one_dies, args=(rank, tmp_path, victim)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)  # far below the timeout of a message
    assert [process.exitcode for process in processes] == [-9 if rank == victim else 0 for rank in range(3)]
    for rank in {0, 1, 2} - {victim}:
        assert "onnection" in (text := (tmp_path / f"error-{victim}-{rank}").read_text()) or "has failed" in text
