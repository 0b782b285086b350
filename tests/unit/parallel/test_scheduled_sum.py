"""Sums over real gloo processes: all algorithms in one group of each size."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from equipoise.parallel.bucket_sums import build_bucket_sums, require_usable_backend
from equipoise.parallel.build_schedule import build_schedule
from equipoise.parallel.schedule import count_sent_elements
from equipoise.parallel.scheduled_sum import ScheduledSum
from equipoise.registries.all_reduce_registry import list_runnable_algorithms
from tests.support.errors import raises_code
from tests.support.gloo import run_with_gloo

SIZES_AND_DTYPES = [
    *((size, torch.float64) for size in (0, 1, 2, 5, 1000)),
    (100_003, torch.float32),
    (1000, torch.bfloat16),
]


def draw_numbers(rank, size, dtype):
    """Return integers where fp64 sums them exactly, else normal numbers."""
    generator = torch.Generator().manual_seed(rank)
    if dtype == torch.float64:
        return torch.randint(-(1 << 40), 1 << 40, (size,), generator=generator).double()
    return torch.randn(size, generator=generator).to(dtype)


def sum_by_all_algorithms():
    """Return the sums by algorithm, each started before any is waited for, and twice over the same memory."""
    rank, ranks, results = dist.get_rank(), dist.get_world_size(), {}
    for algorithm in list_runnable_algorithms(ranks):
        tensors = [draw_numbers(rank, *case) for case in SIZES_AND_DTYPES]
        sums = build_bucket_sums(tensors, [algorithm] * len(tensors))
        for bucket_sum, tensor in zip(sums, tensors, strict=True):
            schedule = build_schedule(algorithm, rank, ranks, len(tensor), ranks)
            assert bucket_sum.sent_bytes == count_sent_elements(schedule) * tensor.element_size()
            assert bucket_sum.num_rounds == len(schedule)
        for _ in range(2):
            for tensor, case in zip(tensors, SIZES_AND_DTYPES, strict=True):
                tensor.copy_(draw_numbers(rank, *case))
            for pending in [bucket_sum.start() for bucket_sum in sums]:
                pending.wait()
        results[algorithm] = tensors
    sums = build_bucket_sums([torch.ones(3), torch.ones(5), torch.ones(2)], ["backend", "direct", "backend"])
    assert [bucket_sum is None for bucket_sum in sums] == [True, False, True]
    with raises_code("all-reduce-unusable", "messages of gloo"):
        require_usable_backend(torch.device("cuda"))
    if ranks == 4:
        results["two-level of two nodes"] = tensors = [draw_numbers(rank, *case) for case in SIZES_AND_DTYPES]
        for tensor in tensors:
            ScheduledSum(build_schedule("two-level", rank, 4, len(tensor), 2), tensor, rank).run()
    return results


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_algorithms_sum_on_real_workers_to_the_same_bits(tmp_path, ranks):
    first, *others = run_with_gloo(ranks, tmp_path, sum_by_all_algorithms)
    for algorithm, tensors in first.items():
        for index, (size, dtype) in enumerate(SIZES_AND_DTYPES):
            assert all(torch.equal(tensors[index], other[algorithm][index]) for other in others)
            rows = torch.stack([draw_numbers(rank, size, dtype).double() for rank in range(ranks)])
            roundings = 0 if dtype == torch.float64 else ranks * torch.finfo(dtype).eps
            assert ((tensors[index].double() - rows.sum(0)).abs() <= roundings * rows.abs().sum(0)).all(), algorithm


def sum_where_one_worker_fails():
    """Start a sum that fails before its first message, and return what waiting for it raises."""
    tensor = torch.ones(8)
    bucket_sum = ScheduledSum(build_schedule("ring", dist.get_rank(), 2, 8), tensor, dist.get_rank())
    bucket_sum.run = partial(int, "not a number")
    try:
        bucket_sum.start().wait()
    except ValueError as error:
        return str(error)
    return None


def test_failure_in_the_background_is_raised_where_the_sum_is_waited_for(tmp_path):
    assert all("not a number" in message for message in run_with_gloo(2, tmp_path, sum_where_one_worker_fails))
