"""How long workers take to sum so many bytes, with nothing else to do: it tells a link's delay from its rate."""

import statistics
import time

import torch
import torch.distributed as dist
from torch import Tensor

SHARES = 64, 8, 1  # parts of the gradient that are summed, beside what is too little to take time on any link
FEW_BYTES = 1024  # of each worker
LEAST_ROUNDS, MOST_ROUNDS = 5, 50
SECONDS = 1.0  # for each number of bytes, where the fewest rounds take no longer


def timed(most: int, device: torch.device) -> dict[int, float]:
    """Seconds by bytes, up to `most`: the median of rounds, each as long as its slowest worker."""
    few = FEW_BYTES * dist.get_world_size()
    sizes = [few, *(size for share in SHARES if (size := most // share // 4 * 4) > few)]
    return {size: seconds(torch.zeros(size // 4, device=device)) for size in sizes}


def seconds(values: Tensor) -> float:
    """In which all workers sum such a tensor."""
    rounds(values, 2)  # buffers and connections
    enough = SECONDS / max(rounds(values, 2))
    return statistics.median(rounds(values, int(min(max(enough, LEAST_ROUNDS), MOST_ROUNDS))))


def rounds(values: Tensor, count: int) -> list[float]:
    """Seconds of each round, the slowest worker's: all of them get the same."""
    took = []
    for _ in range(count):
        start = time.perf_counter()
        dist.all_reduce(values)
        if values.is_cuda:
            torch.cuda.synchronize(values.device)
        took.append(time.perf_counter() - start)
    slowest = torch.tensor(took, dtype=torch.float64, device=values.device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return [float(one) for one in slowest]
