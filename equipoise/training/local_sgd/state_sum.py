"""Sum of tensors over worker processes, through flat buckets and by the algorithms that sum gradients."""

from collections.abc import Sequence

from torch import Tensor, nn

from equipoise.registries.all_reduce_registry import AllReduceName
from equipoise.training.gradient_sync import GradientAllReduce


class StateSum:
    """Sum of the same tensors over worker processes, as often as `run` is called by all of them."""

    def __init__(self, tensors: Sequence[Tensor], workers: int, all_reduce: AllReduceName) -> None:
        # each tensor passes as the gradient of a slot, which shares the memory of `tensors`
        self.slots = [nn.Parameter(tensor.detach()) for tensor in tensors]
        self.all_reduce = GradientAllReduce(self.slots, workers, all_reduce)

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over workers of tensors like those of the constructor; the next call overwrites them."""
        for slot, tensor in zip(self.slots, tensors, strict=True):
            slot.grad = tensor
        self.all_reduce.begin_last_micro_batch(None)
        self.all_reduce.launch_remaining()
        self.all_reduce.wait_for_sums()
        return [slot.grad for slot in self.slots if slot.grad is not None]
