"""A message from one host to the other and back, over and over: `python -m tests.network.ping_pong RANK ADDRESS`."""

import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

BYTES, ROUNDS, PORT = 1024, 500, 29_500


def half() -> float:
    """Seconds of half the way there and back."""
    rank, address = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    way = f"tcp://{address}:{PORT}"
    dist.init_process_group("gloo", init_method=way, rank=rank, world_size=2, timeout=timedelta(minutes=2))
    values, took = torch.zeros(BYTES // 4), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for sends in (rank == 0, rank == 1):
            (dist.send if sends else dist.recv)(values, 1 - rank)
        took.append(time.perf_counter() - start)
    dist.barrier()
    dist.destroy_process_group()
    return statistics.median(took) / 2


if __name__ == "__main__":
    print(half())
