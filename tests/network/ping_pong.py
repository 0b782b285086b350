"""Send a message to another host and back, 500 times: `python -m tests.network.ping_pong RANK ADDRESS`."""

import statistics
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

MESSAGE_BYTES, ROUNDS, PORT = 1024, 500, 29_500


def measure_one_way_seconds() -> float:
    """Return half the median time of a round trip, in seconds."""
    rank, address = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    url = f"tcp://{address}:{PORT}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=2, timeout=timedelta(minutes=2))
    values, round_trips = torch.zeros(MESSAGE_BYTES // 4), []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for sends in (rank == 0, rank == 1):
            (dist.send if sends else dist.recv)(values, 1 - rank)
        round_trips.append(time.perf_counter() - start)
    dist.barrier()
    dist.destroy_process_group()
    return statistics.median(round_trips) / 2


if __name__ == "__main__":
    print(measure_one_way_seconds())
