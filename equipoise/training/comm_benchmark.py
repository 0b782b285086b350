"""How long workers take to hand on a message and to sum so many bytes, with nothing else to do.

The first is a link's delay, the second its rate. A small sum would not do for the delay: its call costs more than that.
"""

import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

SHARES = 64, 8, 1  # parts of the gradient that are summed
LEAST_BYTES = 1 << 16  # of a sum: what is less takes the time of its call
MESSAGE_BYTES = 1024
MESSAGES, LEAST_ROUNDS, MOST_ROUNDS = 300, 5, 50
SECONDS = 1.0  # for each number of bytes, where the fewest rounds take no longer


def sums(most: int, device: torch.device) -> dict[int, float]:
    """Seconds by bytes, up to `most`: the median of rounds, each as long as its slowest worker."""
    sizes = {max(most // share // 4 * 4, LEAST_BYTES) for share in SHARES}
    return {size: summed(torch.zeros(size // 4, device=device)) for size in sorted(sizes)}


def summed(values: Tensor) -> float:
    """Seconds in which all workers sum such a tensor."""

    def once() -> None:
        dist.all_reduce(values)

    rounds(once, 2, values.device)  # buffers and connections
    enough = SECONDS / max(rounds(once, 2, values.device))
    return statistics.median(rounds(once, int(min(max(enough, LEAST_ROUNDS), MOST_ROUNDS)), values.device))


def message(device: torch.device) -> float:
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

        rounds(there_and_back, 2, device)
        slowest = max(slowest, statistics.median(rounds(there_and_back, MESSAGES, device)) / 2)
    return slowest


def rounds(work: Callable[[], None], count: int, device: torch.device) -> list[float]:
    """Seconds of each round, the slowest worker's: all of them get the same."""
    dist.barrier()
    took = []
    for _ in range(count):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - start)
    slowest = torch.tensor(took, dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [float(one) for one in slowest]
