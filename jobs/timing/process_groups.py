"""Process groups of fewer and fewer workers of one job, so that no further processes have to start."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist

MAX_WAIT = timedelta(days=7)
MAX_END_WAIT = timedelta(minutes=1)


class ShrinkingProcessGroup:
    """Process group of the first workers of a job; the others wait until these have ended."""

    def __init__(self, device: torch.device) -> None:
        """Open a store on the first worker, by which smaller groups find each other; all workers call this."""
        self.rank, self.workers = dist.get_rank(), dist.get_world_size()
        self.initial_workers = self.workers
        self.backend = dist.get_backend()
        host, port = os.environ["MASTER_ADDR"], 0
        if self.rank == 0:
            self.store = dist.TCPStore(host, port, is_master=True, wait_for_workers=False)  # type: ignore[attr-defined]
            port = self.store.port
        shared_port = torch.tensor(port, device=device)
        dist.all_reduce(shared_port)
        if self.rank > 0:
            self.store = dist.TCPStore(host, int(shared_port), is_master=False)  # type: ignore[attr-defined]

    def shrink(self, workers: int) -> bool:
        """Leave the first `workers` in the group, and return whether this one is among them."""
        if workers < self.workers:
            dist.barrier()  # gloo may abort where one worker leaves before the others have heard of the last message
            dist.destroy_process_group()
            if self.rank < workers and workers > 1:
                store = dist.PrefixStore(str(workers), self.store)  # type: ignore[attr-defined]
                dist.init_process_group(self.backend, store=store, rank=self.rank, world_size=workers)
            self.workers = workers
        return self.rank < workers

    def end(self) -> None:
        """Let the workers that have left the group go on, and wait until they have heard of it.

        The first worker calls this. The store ends with it, and with the store whoever still waits for an answer.
        """
        self.store.set("end", "")
        self.store.wait([f"{rank} has ended" for rank in range(self.workers, self.initial_workers)], MAX_END_WAIT)

    def wait_for_end(self) -> None:
        """Wait until the first worker calls `end`."""
        self.store.wait(["end"], MAX_WAIT)
        self.store.set(f"{self.rank} has ended", "")
