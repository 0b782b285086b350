"""Average of the state of workers, over those that a process hosts and then over processes.

Sums over processes go through flat buckets and by the algorithms that sum gradients (`--all-reduce`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.step_timer import StepTimer


class StateAverage(GradientAllReduce):
    """Average of the same tensors over all workers: `add_worker` of each hosted one, then `average`."""

    def __init__(self, tensors: Sequence[Tensor], config: TrainConfig, num_hosted: int, timer: StepTimer) -> None:
        """Prepare averages of tensors like these over the workers of the options, `num_hosted` of them here."""
        # each tensor passes as the gradient of a slot, which takes no memory of its own
        self.slots = [nn.Parameter(tensor.detach()) for tensor in tensors]
        super().__init__(self.slots if timer.workers > 1 else [], timer.workers, config.all_reduce)
        self.timer, self.num_workers = timer, config.workers
        self.hosted_sums = [torch.zeros_like(tensor) for tensor in tensors] if num_hosted > 1 else []
        self.own: list[Tensor] = []  # of the only hosted worker

    def begin(self, tensors: list[Tensor]) -> None:
        """Do nothing with what all workers have agreed on: the next average needs only what they make of it."""

    def add_worker(self, index: int, tensors: list[Tensor]) -> None:
        """Add the tensors of a hosted worker, counted from 0; those of the only one may not change until `average`."""
        if not self.hosted_sums:
            self.own = tensors  # perhaps none
        elif index == 0:
            torch._foreach_copy_(self.hosted_sums, tensors)
        else:
            torch._foreach_add_(self.hosted_sums, tensors)

    def average(self) -> list[Tensor]:
        """Return the averages over all workers; the next ones overwrite them."""
        if not self.slots:
            return []
        sums = self.hosted_sums or self.own
        if self.workers > 1:
            mark = self.timer.mark()
            for slot, tensor in zip(self.slots, sums, strict=True):
                slot.grad = tensor
            self.begin_last_micro_batch(None)
            self.launch_remaining()
            self.wait_for_sums()
            sums = [slot.grad for slot in self.slots if slot.grad is not None]
            self.timer.record_span("exchange", mark)
        if self.num_workers > 1:
            torch._foreach_div_(sums, self.num_workers)
        return sums
