"""Choose the algorithm that sums each gradient bucket by timing sums of such sizes before the first step.

All algorithms take turns, because the pace of a machine and of a network drifts. The fastest of many has also been
lucky, so it is timed in fresh pairs with the backend, and has to be faster there too by `MIN_SPEEDUP`.

Buckets whose sums take long are not timed. What sums them is faster at a smaller size and sends no more bytes than a
ring: it saves messages, and costs nothing where bytes count.
"""

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.errors import EquipoiseError
from equipoise.parallel.algorithm_choice import AlgorithmTiming, choose_algorithm, estimate_sum_seconds
from equipoise.parallel.bucket_sums import build_bucket_sums, require_usable_backend
from equipoise.parallel.build_schedule import build_schedule
from equipoise.parallel.node_groups import gather_group_size
from equipoise.parallel.scheduled_sum import ScheduledSum, scratch_bytes
from equipoise.planning.exchanges.exchange_time import all_reduce_cost
from equipoise.registries.all_reduce_registry import (
    ALL_REDUCE_ALGORITHMS,
    AllReduceAlgorithm,
    AppliedAllReduce,
    list_runnable_algorithms,
)
from equipoise.runs.record import Lap
from equipoise.training.comm_benchmark import time_rounds, time_turns
from equipoise.training.gradient_sync import GradientAllReduce, GradientBucket

MIN_SPEEDUP = 1.03  # of an algorithm over the backend: less is within the error of timing
TIMING_SECONDS = 1.0  # of all turns together, unless the fewest rounds take longer
MIN_ROUNDS, MAX_ROUNDS = 3, 20
MIN_PAIRS, MAX_PAIRS = 9, 41
SURE_SHARE = 2 / 3  # of pairs in which the speed-up must show
MAX_TIMED_SIZES = 4  # three sizes of buckets, and one that stands for larger ones
MIN_CAP_BYTES = 1 << 18  # sums of so many bytes are always timed: a ring of any number of workers can sum them
MAX_SUM_SECONDS = 0.02  # of the largest sum that is timed
MAX_WAITING_BYTES = 1 << 26  # that wait to be added in one sum; an algorithm that needs more is not tried
SUM_NAMES: tuple[AppliedAllReduce, ...] = ("backend", *ALL_REDUCE_ALGORITHMS)


def resume_or_choose_algorithms(gradient_sync: GradientAllReduce, finished_laps: Sequence[Lap]) -> None:
    """Sum each bucket by the algorithm of the last lap if as many workers took it, or else by the one that is fastest.

    So a resumed run takes the same sums as an uninterrupted one, unless its gradients are in other buckets. All workers
    call this.
    """
    last_lap = finished_laps[-1] if finished_laps else None
    is_known = last_lap is not None and len(last_lap.all_reduce) == len(gradient_sync.buckets)
    if last_lap and is_known and last_lap.workers == gradient_sync.workers:
        try:
            gradient_sync.set_algorithms(last_lap.all_reduce)
        except EquipoiseError:  # the nodes are no longer such that two-level can run
            pass
        else:
            return
    gradient_sync.set_algorithms(choose_bucket_algorithms(gradient_sync.buckets, gradient_sync.workers))


def choose_bucket_algorithms(
    buckets: Sequence[GradientBucket], workers: int, max_sum_seconds: float = MAX_SUM_SECONDS
) -> list[AppliedAllReduce]:
    """Return the algorithm to sum each bucket by, the same on all workers; they all call this."""
    if not buckets:
        return []
    sizes, like = [bucket.flat_gradients.nbytes for bucket in buckets], buckets[0].flat_gradients
    cap = find_size_cap(max(sizes), like, workers, max_sum_seconds)
    candidates = list_candidates(like.device, workers)
    timings = [
        row
        for size in select_sizes([size for size in sizes if size <= cap])
        for row in time_algorithms(build_bucket(size, like, workers), workers, candidates)
    ]
    large_choice: AppliedAllReduce = "backend"
    if max(sizes) > cap:
        frugal = [name for name in candidates if sends_no_more_than_ring(name, workers)]
        large_choice = choose_over_backend(cap, time_algorithms(build_bucket(cap, like, workers), workers, frugal))
    choices = [choose_over_backend(size, timings) if size <= cap else large_choice for size in sizes]
    return share_choice(choices, like.device)


def list_candidates(device: torch.device, workers: int) -> list[AllReduceAlgorithm]:
    """Return the algorithms that these workers can run; `two-level` only where nodes have several workers each."""
    try:
        require_usable_backend(device)
    except EquipoiseError:
        return []
    group_size = gather_group_size(device)
    has_levels = group_size is not None and 1 < group_size < workers
    return [name for name in list_runnable_algorithms(workers) if name != "two-level" or has_levels]


def find_size_cap(max_bytes: int, like: Tensor, workers: int, max_sum_seconds: float) -> int:
    """Return the size up to which sums are timed: `max_bytes` or more if the backend sums that in `max_sum_seconds`."""
    cap = MIN_CAP_BYTES
    while cap < max_bytes:
        exchange = partial(sum_bucket, build_bucket(cap, like, workers), None)
        time_rounds(exchange, 1, like.device)  # opens connections
        if 4 * min(time_rounds(exchange, 2, like.device)) > max_sum_seconds:
            break
        cap *= 4
    return cap


def select_sizes(sizes: Sequence[int]) -> list[int]:
    """Return up to three of the sizes: the smallest, one in the middle and the largest."""
    distinct = sorted(set(sizes))
    return sorted({distinct[0], distinct[len(distinct) // 2], distinct[-1]}) if distinct else []


def sends_no_more_than_ring(algorithm: AllReduceAlgorithm, workers: int) -> bool:
    """Return whether no worker sends more bytes than around a ring; `two-level` saves them between nodes."""
    if algorithm == "two-level":
        return True
    costs = [all_reduce_cost(name, workers, 1.0) for name in (algorithm, "ring")]
    ours, ring = (cost.local.serial_bytes for cost in costs)
    return ours <= ring


def time_algorithms(
    bucket: GradientBucket, workers: int, candidates: Sequence[AllReduceAlgorithm]
) -> list[AlgorithmTiming]:
    """Time sums of a bucket by the backend and by each algorithm that needs no more memory than `MAX_WAITING_BYTES`.

    One that was faster than the backend, but not once more in fresh pairs, counts as being as fast as the backend.
    """
    flat = bucket.flat_gradients
    names = list_affordable(candidates, flat, workers)
    sums = build_bucket_sums([flat] * len(names), names) if names else []
    operations = [partial(sum_bucket, bucket, scheduled_sum) for scheduled_sum in (None, *sums)]
    time_turns(operations, 1, flat.device)
    seconds = TIMING_SECONDS / MAX_TIMED_SIZES / 2  # half for all algorithms, half for pairs
    rows = time_for_seconds(operations, seconds, (MIN_ROUNDS, MAX_ROUNDS), flat.device)
    backend_seconds, *others = map(statistics.median, zip(*rows, strict=True))
    timings = {name: max(backend_seconds, took) for name, took in zip(names, others, strict=True)}
    if names and min(others) * MIN_SPEEDUP <= backend_seconds:
        fastest = others.index(min(others))
        pair = [operations[0], operations[1 + fastest]]
        pairs = time_for_seconds(pair, seconds, (MIN_PAIRS, MAX_PAIRS), flat.device)
        ratio = float(np.quantile([took / backend for backend, took in pairs], SURE_SHARE))
        timings[names[fastest]] = backend_seconds * min(1.0, ratio)
    return [
        AlgorithmTiming("backend", flat.nbytes, backend_seconds),
        *(AlgorithmTiming(name, flat.nbytes, took) for name, took in timings.items()),
    ]


def time_for_seconds(
    operations: Sequence[Callable[[], object]], seconds: float, bounds: tuple[int, int], device: torch.device
) -> list[list[float]]:
    """Return the seconds of operations by round and operation, of as many rounds as fit in `seconds`, within bounds."""
    fewest, most = bounds
    rows = time_turns(operations, fewest, device)
    rounds = min(most, int(seconds / statistics.mean(map(sum, rows))))  # the same on all workers, as the seconds are
    return rows + time_turns(operations, rounds - fewest, device) if rounds > fewest else rows


def choose_over_backend(size_bytes: int, timings: Sequence[AlgorithmTiming]) -> AppliedAllReduce:
    """Return the fastest algorithm for a sum of `size_bytes`: the backend unless another is faster by `MIN_SPEEDUP`."""
    fastest = choose_algorithm(size_bytes, timings)
    seconds, backend_seconds = (estimate_sum_seconds(size_bytes, name, timings) for name in (fastest, "backend"))
    return fastest if seconds * MIN_SPEEDUP <= backend_seconds else "backend"


def share_choice(names: Sequence[AppliedAllReduce], device: torch.device) -> list[AppliedAllReduce]:
    """Return the names that worker 0 has chosen."""
    indices = torch.tensor([SUM_NAMES.index(name) for name in names], device=device)
    dist.broadcast(indices, 0)
    return [SUM_NAMES[index] for index in indices.tolist()]


def build_bucket(size_bytes: int, like: Tensor, workers: int) -> GradientBucket:
    """Build a bucket of zeros of so many bytes, with the dtype and device of `like`."""
    return GradientBucket([nn.Parameter(like.new_zeros(size_bytes // like.element_size()))], workers)


def sum_bucket(bucket: GradientBucket, scheduled_sum: ScheduledSum | None) -> None:
    """Sum a bucket over all workers as in training, by a schedule or else by the backend."""
    bucket.scheduled_sum = scheduled_sum
    bucket.start_exchange().wait()
    bucket.sum_received_rows()


def list_affordable(
    candidates: Sequence[AllReduceAlgorithm], tensor: Tensor, workers: int, max_bytes: int = MAX_WAITING_BYTES
) -> list[AllReduceAlgorithm]:
    """Return the algorithms that keep at most `max_bytes` waiting to be added on worker 0, which never has fewer."""
    return [
        name
        for name in candidates
        if name == "two-level"  # its rings keep parts waiting
        or scratch_bytes(build_schedule(name, 0, workers, tensor.numel()), tensor) <= max_bytes
    ]
