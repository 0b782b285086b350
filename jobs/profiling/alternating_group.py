"""Process group that opens again after its first worker has worked alone, so that both can be measured in turns."""

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist

from jobs.timing.process_groups import MAX_WAIT, ShrinkingProcessGroup

Result = TypeVar("Result")


class AlternatingGroup(ShrinkingProcessGroup):
    """Process group of all workers of a job, from which the first one goes to work alone, and comes back."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.turns = 0

    def work_alone(self, work: Callable[[], Result]) -> Result:
        """Call `work` on the first worker without a process group while the others wait, and return its result to all.

        All workers call this together. Waiting takes no processor time.
        """
        dist.barrier()  # gloo may abort where one worker leaves before the others have heard of the last message
        dist.destroy_process_group()
        self.turns += 1
        end_key = f"worked alone {self.turns}"
        results: list[Result | None] = [None]
        if self.rank == 0:
            results[0] = work()
            self.store.set(end_key, "")
        else:
            self.store.wait([end_key], MAX_WAIT)
        store = dist.PrefixStore(f"group {self.turns}", self.store)  # type: ignore[attr-defined]
        dist.init_process_group(self.backend, store=store, rank=self.rank, world_size=self.workers)
        dist.broadcast_object_list(results, src=0)
        result: Result = results[0]  # type: ignore[assignment]  # the first worker has set it
        return result
