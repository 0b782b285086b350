import pytest
import torch
from torch import nn

from equipoise.training.gradient_norms import GradientNorms
from equipoise.training.gradient_sync import (
    GradientAllReduce,
    GradientBucket,
    assign_buckets,
    uses_all_to_all,
)
from tests.support.gloo import run_with_gloo


def test_buckets_keep_parameter_order_and_stay_within_their_size():
    parameters = [
        nn.Parameter(torch.empty(size)) for size in (100_000, 200_000, 50_000, 6_000_000, 400_000, 20_000_000, 3)
    ]
    buckets = assign_buckets(parameters)
    assert [p for bucket in buckets for p in bucket] == parameters
    for limit, bucket in zip([1 << 20] + [25 << 20] * len(buckets), buckets, strict=False):
        assert len(bucket) == 1 or sum(4 * p.numel() for p in bucket) <= limit


def test_bucket_holds_one_dtype():
    parameters = [nn.Parameter(torch.empty(4, dtype=dtype)) for dtype in (torch.float32, torch.float64, torch.float64)]
    assert [len(bucket) for bucket in assign_buckets(parameters)] == [1, 2]


@pytest.mark.parametrize(
    ("size_bytes", "workers", "device", "expected"),
    [(1 << 16, 4, "cpu", True), ((1 << 16) + 4, 4, "cpu", False), (1 << 18, 2, "cpu", False), (4, 2, "cuda", False)],
)
def test_only_small_sums_on_cpus_go_by_one_all_to_all(size_bytes, workers, device, expected):
    assert uses_all_to_all(size_bytes, workers, torch.device(device)) == expected


def test_only_a_bucket_of_few_bytes_has_room_for_the_gradients_of_all_workers():
    small, large = (GradientBucket([nn.Parameter(torch.empty(size))], workers=2) for size in (8, 1 << 16))
    assert small.received_rows.shape == (2, 8) and large.received_rows is None


def test_one_worker_exchanges_nothing():
    model = nn.Linear(3, 2)
    exchange = GradientAllReduce(list(model.parameters()), workers=1)
    assert exchange.buckets == []  # small gradients stay where autograd puts them
    exchange.begin_last_micro_batch(GradientNorms())
    model(torch.ones(1, 3)).sum().backward()
    exchange.launch_remaining()
    exchange.wait_for_sums()
    assert torch.equal(model.weight.grad, torch.ones(2, 3))


def test_one_worker_keeps_the_memory_of_large_gradients():
    model = nn.Linear(3, 1 << 20)
    exchange = GradientAllReduce(list(model.parameters()), workers=1)
    addresses = []
    for step in range(2):
        model.zero_grad(set_to_none=True)
        for last in (False, True):
            if last:
                exchange.begin_last_micro_batch(None)
            model(torch.full((1, 3), step + 1.0)).sum().backward()
        exchange.launch_remaining()
        exchange.wait_for_sums()
        assert torch.equal(model.weight.grad, torch.full((1 << 20, 3), 2 * (step + 1.0)))
        addresses.append(model.weight.grad.data_ptr())
    assert addresses[0] == addresses[1]


def sum_two_micro_steps():
    """Return the gradients after two micro-steps on an input of rank + 1, and the sums of their norms."""
    rank = torch.distributed.get_rank()
    unused = nn.Linear(5, 5)
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 1, bias=False), unused)
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
    # one micro-step on input x: d/dW0 = x in all 6 entries, d/dW1 = 3x in both entries
    for gradients, (_, total_norm, draws) in (results := run_with_gloo(2, tmp_path, sum_two_micro_steps)):
        assert torch.equal(gradients[0], torch.full((2, 3), 2 * (1.0 + 2.0)))
        assert torch.equal(gradients[1], torch.full((1, 2), 6 * (1.0 + 2.0)))
        assert not gradients[2].any() and not gradients[3].any()
        assert total_norm == 6 * 6**2 + 2 * 18**2
        assert draws == 1
    assert [local_norm for _, (local_norm, _, _) in results] == [6 * 2**2 + 2 * 6**2, 6 * 4**2 + 2 * 12**2]


def sum_two_steps_with_unused_parameters():
    """Return the gradients after each of two steps; the first step uses no parameter but the first of each dtype."""
    parameters = [nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in 2 * [torch.float32] + 2 * [torch.float64]]
    exchange, gradients = GradientAllReduce(parameters, workers=2), []
    for used in (parameters[::2], parameters):
        for last in (False, True):
            if last:
                exchange.begin_last_micro_batch(None)
            sum((torch.distributed.get_rank() + 1) * parameter.double().sum() for parameter in used).backward()
        exchange.launch_remaining()
        exchange.wait_for_sums()
        gradients.append([parameter.grad.clone() for parameter in parameters])
        for parameter in parameters:
            parameter.grad = None
    return gradients


def test_step_after_one_with_unused_parameters_sums_all_its_micro_steps(tmp_path):
    for first, second in run_with_gloo(2, tmp_path, sum_two_steps_with_unused_parameters):
        assert [gradient.tolist() for gradient in first] == [[6.0, 6.0], [0.0, 0.0]] * 2  # 2 * (1 + 2)
        assert [gradient.tolist() for gradient in second] == [[6.0, 6.0]] * 4


def sum_gradient_of_size(size):
    """Return a gradient of `size` numbers summed over workers; a worker's own is its rank plus a ramp."""
    parameter = nn.Parameter(torch.zeros(size))
    exchange = GradientAllReduce([parameter], workers=torch.distributed.get_world_size())
    exchange.begin_last_micro_batch(None)
    own_gradient = torch.arange(size) * 0.1 + torch.distributed.get_rank()
    (parameter * own_gradient).sum().backward()
    exchange.launch_remaining()
    exchange.wait_for_sums()
    return parameter.grad.clone()


@pytest.mark.parametrize("size", [1, (1 << 18) // 4 // 3, (1 << 18) // 4 // 3 + 1])
def test_all_to_all_and_ring_give_equal_sums_on_every_worker(tmp_path, size):
    first, *others = run_with_gloo(3, tmp_path, sum_gradient_of_size, size)
    torch.testing.assert_close(first, torch.arange(size) * 0.3 + 3)
    assert all(torch.equal(first, other) for other in others)
