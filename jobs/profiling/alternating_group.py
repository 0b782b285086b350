"""Process group that its workers leave to work apart, and open again, so that both can be measured in turns."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from equipoise.profiling.stepped_training import gather_objects
from jobs.timing.process_groups import MAX_WAIT, ShrinkingProcessGroup

ApartResult = TypeVar("ApartResult")


class AlternatingGroup(ShrinkingProcessGroup):
    """Process group of all workers of a job, which they leave to work apart; all of them call its methods together."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.waits = 0

    def work_apart(self, work: Callable[[], ApartResult]) -> list[ApartResult]:
        """Call `work` on each worker without a process group, and return their results in the order of ranks."""
        dist.barrier()  # gloo may abort where one worker leaves before the others have heard of the last message
        dist.destroy_process_group()
        own = work()
        self.wait_for_all()
        store = dist.PrefixStore(f"group {self.waits}", self.store)  # type: ignore[attr-defined]
        dist.init_process_group(self.backend, store=store, rank=self.rank, world_size=self.workers)
        results: list[Any] = gather_objects(own)
        return results

    def work_alone(self, work: Callable[[], ApartResult]) -> ApartResult:
        """Call `work` on the first worker while the others wait, and return its result to all."""
        first: Any = self.work_apart(lambda: work() if self.rank == 0 else None)[0]
        return cast(ApartResult, first)

    def wait_for_all(self) -> None:
        """Wait for all workers, without a process group and without taking processor time."""
        self.waits += 1
        key = f"wait {self.waits}"
        if self.store.add(key, 1) == self.workers:
            self.store.set(f"{key} ends", "")
        self.store.wait([f"{key} ends"], MAX_WAIT)
