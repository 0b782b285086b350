"""Workers of a node in real processes: their gradients are summed before they are pushed, and all get the weights."""

import pytest
import torch
import torch.distributed as dist
from torch import nn

from equipoise.config import TrainConfig
from equipoise.parameter_store.lockstep_order import LockstepOrder
from equipoise.parameter_store.node_level import FirstOfNode, OtherOfNode
from equipoise.parameter_store.servers.server_messages import LapStart
from equipoise.parameter_store.store import ParameterStore
from tests.support.gloo import run_with_gloo

CONFIG = TrainConfig(workload="digits", workers=2, momentum=0.0).with_defaults()
LR = 0.5


def push_and_pull_twice():
    """Return the weights of this worker after each of two steps."""
    rank = dist.get_rank()
    parameters = {"weight": nn.Parameter(torch.zeros(3, dtype=torch.float64))}
    store = ParameterStore(
        CONFIG,
        parameters,
        {},
        worker_ranks=range(1),
        servers=1,
        build_order=lambda: LockstepOrder(1),
        is_asynchronous=False,
    )
    store.begin_lap(LapStart(0, 2, lambda _: LR))
    values = list(parameters.values())
    worker = OtherOfNode(store.channel, values, 0) if rank else FirstOfNode(store.client, store.channel, values, [1])
    if rank:
        with pytest.raises(RuntimeError, match="before it has pushed"):
            worker.pull()
    weights = []
    for ticket in range(2):
        worker.push(ticket, [torch.tensor([1.0, 10.0, 0.0], dtype=torch.float64) * (1 + rank) * (1 + ticket)])
        worker.pull()
        weights.append(parameters["weight"].detach().clone())
    dist.barrier()
    return weights


def test_workers_of_a_node_push_one_sum_and_get_the_same_weights(tmp_path):
    first, other = run_with_gloo(2, tmp_path, push_and_pull_twice)
    step = -LR * torch.tensor([3.0, 30.0, 0.0], dtype=torch.float64)
    for weights in (first, other):
        assert torch.equal(weights[0], step) and torch.equal(weights[1], 3 * step)
