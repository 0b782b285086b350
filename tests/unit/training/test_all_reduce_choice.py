"""Choice of the algorithm of each bucket: by timings, and always the same on all workers."""

import pytest
import torch
from torch import nn

from equipoise.parallel.algorithm_choice import AlgorithmTiming
from equipoise.registries.all_reduce_registry import list_runnable_algorithms
from equipoise.training.all_reduce_choice import (
    MIN_CAP_BYTES,
    SUM_NAMES,
    build_bucket,
    choose_bucket_algorithms,
    choose_over_backend,
    find_size_cap,
    list_affordable,
    list_candidates,
    select_sizes,
    sends_no_more_than_ring,
    share_choice,
    time_algorithms,
    time_for_seconds,
)
from equipoise.training.gradient_sync import GradientBucket
from tests.support.gloo import run_with_gloo

CPU = torch.device("cpu")
CANDIDATES = ["ring", "direct", "root", "tree"]


@pytest.mark.parametrize(("seconds", "chosen"), [(0.98, "backend"), (1.0, "backend"), (0.96, "ring"), (0.5, "ring")])
def test_backend_is_kept_unless_another_is_faster_by_more_than_the_error_of_timing(seconds, chosen):
    timings = [AlgorithmTiming("backend", 1000, 1.0), AlgorithmTiming("ring", 1000, seconds)]
    assert choose_over_backend(1000, timings) == chosen


def test_each_size_has_its_own_choice():
    timings = [
        AlgorithmTiming("backend", 1000, 1.0),
        AlgorithmTiming("backend", 100_000, 10.0),
        AlgorithmTiming("direct", 1000, 0.2),
        AlgorithmTiming("direct", 100_000, 10.0),
        AlgorithmTiming("ring", 1000, 1.0),
        AlgorithmTiming("ring", 100_000, 5.0),
    ]
    assert [choose_over_backend(size, timings) for size in (1, 1000, 100_000, 10**7)] == [
        "direct",
        "direct",
        "ring",
        "ring",
    ]


def choose_for_sizes(counts, max_sum_seconds):
    """Return the choice for buckets of so many numbers, and the candidates."""
    ranks = torch.distributed.get_world_size()
    buckets = [GradientBucket([nn.Parameter(torch.zeros(count))], ranks) for count in counts]
    choice = choose_bucket_algorithms(buckets, ranks, max_sum_seconds)
    assert all(bucket.scheduled_sum is None and not bucket.flat_gradients.any() for bucket in buckets)
    return choice, list_candidates(CPU, ranks)


@pytest.mark.parametrize(
    ("ranks", "max_sum_seconds"), [(2, 9.0), (3, 0.0)]
)  # all sizes are timed, or none above the cap
def test_all_workers_choose_the_same_algorithms(tmp_path, ranks, max_sum_seconds):
    counts = [100, 2 * MIN_CAP_BYTES // 4, 100, 1]
    (choice, candidates), *others = run_with_gloo(ranks, tmp_path, choose_for_sizes, counts, max_sum_seconds)
    assert all(other == (choice, candidates) for other in others)
    assert candidates == [name for name in list_runnable_algorithms(ranks) if name != "two-level"]  # on one node
    assert len(choice) == 4 and choice[0] == choice[2] and {*choice} <= {"backend", *candidates}
    assert max_sum_seconds or choice[1] in ("backend", "ring", "sharded-root")


def time_and_compare():
    """Return the timings of a bucket, the times of two operations of known order, and worker 0's names."""
    bucket = build_bucket(4000, torch.zeros(1), 2)
    timings = time_algorithms(bucket, 2, ["ring", "direct", "tree"])
    rows = time_for_seconds([lambda: None, torch.distributed.barrier], 0.0, (3, 9), CPU)
    many = time_for_seconds([lambda: None], 1e9, (3, 9), CPU)
    names = share_choice([SUM_NAMES[1 + torch.distributed.get_rank()], "tree"], CPU)
    return timings, rows, many, names


def test_one_algorithm_at_most_is_faster_than_the_backend_and_all_workers_agree(tmp_path):
    first, second = run_with_gloo(2, tmp_path, time_and_compare)
    assert first == second
    timings, rows, many, names = first
    assert [row.algorithm for row in timings] == ["backend", "ring", "direct", "tree"]
    assert {row.bytes for row in timings} == {4000}
    assert sum(row.seconds < timings[0].seconds for row in timings) <= 1
    assert [len(row) for row in rows] == [2, 2, 2] and len(many) == 9
    assert names == ["ring", "tree"]


def find_caps():
    return [
        find_size_cap(size, torch.zeros(1), 2, seconds) for size, seconds in ((40, 0.0), (10**6, 0.0), (10**6, 9.0))
    ]


def test_sums_are_timed_up_to_a_size_that_does_not_take_long(tmp_path):
    assert run_with_gloo(2, tmp_path, find_caps) == [[MIN_CAP_BYTES, MIN_CAP_BYTES, 4 * MIN_CAP_BYTES]] * 2


def test_up_to_three_sizes_are_timed():
    assert select_sizes([40, 400, 4000, 40_000, 400_000, 400]) == [40, 4000, 400_000]
    assert select_sizes([40, 40]) == [40] and select_sizes([]) == []


@pytest.mark.parametrize(
    ("workers", "names"),
    [
        (2, ["ring", "halving-doubling", "doubling", "binary-blocks", "two-level", "direct", "sharded-root"]),
        (3, ["ring", "two-level", "sharded-root"]),
        (4, ["ring", "halving-doubling", "binary-blocks", "two-level", "sharded-root"]),
    ],
)
def test_algorithms_for_large_buckets_send_no_more_than_a_ring(workers, names):
    runnable = list_runnable_algorithms(workers)
    assert [name for name in runnable if sends_no_more_than_ring(name, workers)] == names


@pytest.mark.parametrize(
    ("max_bytes", "names"), [(1400, ["ring"]), (4000, ["ring", "tree"]), (8000, CANDIDATES), (0, [])]
)
def test_algorithms_that_need_much_memory_are_not_tried(max_bytes, names):
    # of 4000 bytes on three workers a ring keeps a third waiting, a tree all, and who sums all three of them two
    assert list_affordable(CANDIDATES, torch.zeros(1000), 3, max_bytes) == names
