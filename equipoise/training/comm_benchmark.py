"""How long workers take to hand on a message and to sum so many bytes, with nothing else to do.

The first is a link's delay, the second its rate. A small sum would not do for the delay: its call costs more than that.
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

GRADIENT_DIVISORS = 64, 8, 1  # parts of the gradient that are summed
MIN_ALL_REDUCE_BYTES = 1 << 16  # of a sum: what is less takes the time of its call
MESSAGE_BYTES = 1024
MESSAGE_ROUNDS, MIN_ALL_REDUCE_ROUNDS, MAX_ALL_REDUCE_ROUNDS = 300, 5, 50
ALL_REDUCE_SECONDS = 1.0  # for each number of bytes, where the fewest rounds take no longer


def time_all_reduces(max_bytes: int, device: torch.device) -> dict[int, float]:
    """Seconds by bytes, up to `most`: the median of rounds, each as long as its slowest worker."""
    sizes = {max(max_bytes // share // 4 * 4, MIN_ALL_REDUCE_BYTES) for share in GRADIENT_DIVISORS}
    return {size: time_all_reduce(torch.zeros(size // 4, device=device)) for size in sorted(sizes)}


def time_all_reduce(tensor: Tensor) -> float:
    """Seconds in which all workers sum such a tensor."""

    def once() -> None:
        dist.all_reduce(tensor)

    time_rounds(once, 2, tensor.device)  # buffers and connections
    enough = ALL_REDUCE_SECONDS / max(time_rounds(once, 2, tensor.device))
    return statistics.median(
        time_rounds(once, int(min(max(enough, MIN_ALL_REDUCE_ROUNDS), MAX_ALL_REDUCE_ROUNDS)), tensor.device)
    )


def time_send_recv(device: torch.device) -> float:
    """Seconds from a worker to the next in the ring: half of a message's way there and back, of the slowest pair."""
    workers, rank = dist.get_world_size(), dist.get_rank()
    values = torch.zeros(MESSAGE_BYTES // 4, device=device)
    slowest = 0.0
    for one in range(workers if workers > 2 else 1):
        two = (one + 1) % workers

        def there_and_back(one: int = one, two: int = two) -> None:
            if rank == one:
                dist.send(values, two)
                dist.recv(values, two)
            elif rank == two:
                dist.recv(values, one)
                dist.send(values, one)

        time_rounds(there_and_back, 2, device)
        slowest = max(slowest, statistics.median(time_rounds(there_and_back, MESSAGE_ROUNDS, device)) / 2)
    return slowest


def time_rounds(operation: Callable[[], None], rounds: int, device: torch.device) -> list[float]:
    """Seconds of each round, the slowest worker's: all of them get the same."""
    dist.barrier()
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        operation()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - start)
    slowest = torch.tensor(took, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [float(one) for one in slowest]
