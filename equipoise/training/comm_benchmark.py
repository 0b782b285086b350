"""Time the network alone: a message from one worker to the next, and all-reduces of several sizes.

The message gives the delay of a link, the all-reduces give its rate. A small all-reduce cannot stand in for the
message, because the call itself takes longer than the delay.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.registries.all_reduce_registry import AppliedAllReduce

GRADIENT_DIVISORS = 64, 8, 1  # all-reduces of a 64th of the gradient, of an eighth and of all of it
MIN_ALL_REDUCE_BYTES = 1 << 16  # a smaller all-reduce takes as long as its call
MESSAGE_BYTES = 1024
MESSAGE_ROUNDS, MIN_ALL_REDUCE_ROUNDS, MAX_ALL_REDUCE_ROUNDS = 300, 5, 50
ALL_REDUCE_SECONDS = 3.0  # time for all sizes, unless the minimum of rounds takes longer


def time_all_reduces(
    max_bytes: int,
    device: torch.device,
    max_seconds: float = ALL_REDUCE_SECONDS,
    algorithm: AppliedAllReduce = "backend",
) -> dict[int, float]:
    """Return the seconds of an all-reduce by its size in bytes, for sizes up to `max_bytes`, by one algorithm.

    The time of a size is the median of rounds, each as long as its slowest worker.
    """
    sizes = {max(max_bytes // divisor // 4 * 4, MIN_ALL_REDUCE_BYTES) for divisor in GRADIENT_DIVISORS}
    seconds = min(max_seconds, ALL_REDUCE_SECONDS) / len(sizes)
    return {size: time_all_reduce(torch.zeros(size // 4, device=device), seconds, algorithm) for size in sorted(sizes)}


def time_all_reduce(tensor: Tensor, seconds: float, algorithm: AppliedAllReduce = "backend") -> float:
    """Return the median seconds of an all-reduce of `tensor` over all workers, repeated for about `seconds`."""
    all_reduce_once = find_sum_operation(tensor, algorithm)
    time_rounds(all_reduce_once, 2, tensor.device)  # allocates buffers and opens connections
    rounds = seconds / max(time_rounds(all_reduce_once, 2, tensor.device))
    rounds = int(min(max(rounds, MIN_ALL_REDUCE_ROUNDS), MAX_ALL_REDUCE_ROUNDS))
    return statistics.median(time_rounds(all_reduce_once, rounds, tensor.device))


def find_sum_operation(tensor: Tensor, algorithm: AppliedAllReduce) -> Callable[[], object]:
    """Return a function that sums `tensor` over all workers by an algorithm, as training does; not `auto`."""
    if algorithm == "backend":
        return lambda: dist.all_reduce(tensor)
    from equipoise.parallel.bucket_sums import build_bucket_sums

    (scheduled_sum,) = build_bucket_sums([tensor], [algorithm])
    assert scheduled_sum is not None  # noqa: S101 - only that of the backend is
    return lambda: scheduled_sum.start().wait()


def time_send_recv(device: torch.device) -> float:
    """Return the seconds of a message from a worker to the next in the ring: half a round trip of the slowest pair."""
    workers = dist.get_world_size()
    values = torch.zeros(MESSAGE_BYTES // 4, device=device)
    slowest = 0.0
    for first in range(workers if workers > 2 else 1):
        second = (first + 1) % workers

        def round_trip(first: int = first, second: int = second) -> None:
            send_and_return(values, first, second)

        time_rounds(round_trip, 2, device)
        slowest = max(slowest, statistics.median(time_rounds(round_trip, MESSAGE_ROUNDS, device)) / 2)
    return slowest


def send_and_return(values: Tensor, first: int, second: int) -> None:
    """Send values from one worker to another and back; the others do nothing."""
    rank = dist.get_rank()
    if rank == first:
        dist.send(values, second)
        dist.recv(values, second)
    elif rank == second:
        dist.recv(values, first)
        dist.send(values, first)


def time_rounds(operation: Callable[[], object], rounds: int, device: torch.device) -> list[float]:
    """Return the seconds of each round on its slowest worker; every worker gets the same list."""
    return [seconds for (seconds,) in time_turns([operation], rounds, device)]


def time_turns(operations: Sequence[Callable[[], object]], rounds: int, device: torch.device) -> list[list[float]]:
    """Return the seconds of operations that take turns, by round and operation, on the slowest worker of each."""
    dist.barrier()
    durations: list[list[float]] = [[] for _ in range(rounds)]
    for row in durations:
        for operation in operations:
            start = time.perf_counter()
            operation()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            row.append(time.perf_counter() - start)
    slowest = torch.tensor(durations, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.tolist()
