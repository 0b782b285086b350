import pytest
import torch
from torch import nn

from equipoise.training.gradient_norms import GradientNorms
from equipoise.training.gradient_sync import (
    BUCKET_BYTES,
    FIRST_BUCKET_BYTES,
    MAX_ALL_TO_ALL_BYTES,
    GradientAllReduce,
    assign_buckets,
)
from tests.support.gloo import run_with_gloo


def test_buckets_keep_the_order_and_their_size():
    layers = [nn.Parameter(torch.empty(size)) for size in (100_000, 200_000, 50_000, 6_000_000, 400_000, 20_000_000, 3)]
    groups = assign_buckets(layers)
    assert [p for group in groups for p in group] == layers
    for limit, group in zip([FIRST_BUCKET_BYTES] + [BUCKET_BYTES] * len(groups), groups, strict=False):
        assert len(group) == 1 or sum(4 * p.numel() for p in group) <= limit


def test_a_bucket_holds_one_type():
    mixed = [nn.Parameter(torch.empty(4, dtype=dtype)) for dtype in (torch.float32, torch.float64, torch.float64)]
    assert [len(group) for group in assign_buckets(mixed)] == [1, 2]


def test_one_worker_exchanges_nothing():
    model = nn.Linear(3, 2)
    exchange = GradientAllReduce(list(model.parameters()), workers=1)
    exchange.begin_last_micro_batch(GradientNorms())
    model(torch.ones(1, 3)).sum().backward()
    exchange.launch_remaining()
    exchange.wait_for_sums()
    assert torch.equal(model.weight.grad, torch.ones(2, 3))


def test_one_worker_keeps_large_gradients_where_they_are():
    model = nn.Linear(3, FIRST_BUCKET_BYTES)
    exchange = GradientAllReduce(list(model.parameters()), workers=1)
    places = []
    for step in range(2):
        model.zero_grad(set_to_none=True)
        for last in (False, True):
            if last:
                exchange.begin_last_micro_batch(None)
            model(torch.full((1, 3), step + 1.0)).sum().backward()
        exchange.launch_remaining()
        exchange.wait_for_sums()
        assert torch.equal(model.weight.grad, torch.full((FIRST_BUCKET_BYTES, 3), 2 * (step + 1.0)))
        places.append(model.weight.grad.data_ptr())
    assert places[0] == places[1]


def summed():
    """Gradients after two micro-steps with the rank's own input, and the norms taken."""
    rank = torch.distributed.get_rank()
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 1, bias=False), nn.Linear(5, 5))  # the last is idle
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    exchange, norms = GradientAllReduce(list(model.parameters()), workers=2), GradientNorms()
    for last in (False, True):
        if last:
            exchange.begin_last_micro_batch(norms)
        model[1](model[0](torch.full((1, 3), rank + 1.0))).sum().backward()
    exchange.launch_remaining()
    exchange.wait_for_sums()
    return [parameter.grad for parameter in model.parameters()], norms.pop_sums()


def test_gradients_are_summed_over_workers_and_micro_steps(tmp_path):
    # one micro-step of input x: d/dW0 = x in all 6 places, d/dW1 = 3x in both
    for gradients, (_local, total, draws) in (results := run_with_gloo(2, tmp_path, summed)):
        assert torch.equal(gradients[0], torch.full((2, 3), 2 * (1.0 + 2.0)))
        assert torch.equal(gradients[1], torch.full((1, 2), 6 * (1.0 + 2.0)))
        assert not gradients[2].any() and not gradients[3].any()
        assert total == 6 * 6**2 + 2 * 18**2
        assert draws == 1
    assert [local for _, (local, _, _) in results] == [6 * 2**2 + 2 * 6**2, 6 * 4**2 + 2 * 12**2]


def summed_parts(size):
    """A gradient of `size` numbers, summed over workers whose own is the rank and a fraction."""
    parameter = nn.Parameter(torch.zeros(size))
    exchange = GradientAllReduce([parameter], workers=torch.distributed.get_world_size())
    exchange.begin_last_micro_batch(None)
    own = torch.arange(size) * 0.1 + torch.distributed.get_rank()
    (parameter * own).sum().backward()
    exchange.launch_remaining()
    exchange.wait_for_sums()
    return parameter.grad.clone()


@pytest.mark.parametrize("size", [1, MAX_ALL_TO_ALL_BYTES // 4 // 3, MAX_ALL_TO_ALL_BYTES // 4 // 3 + 1])
def test_one_round_and_the_ring_sum_alike_on_every_worker(tmp_path, size):
    first, *others = run_with_gloo(3, tmp_path, summed_parts, size)
    torch.testing.assert_close(first, torch.arange(size) * 0.3 + 3)
    assert all(torch.equal(first, other) for other in others)
