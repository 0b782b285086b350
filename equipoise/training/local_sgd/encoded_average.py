"""Average of the state of workers that send what they changed since the last one, encoded (`--compression`).

Weights and moments that may have any sign are encoded. Second moments of an optimizer and running statistics travel as
they are: an error could make a variance negative, whose root the next step takes.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from equipoise.compression.build_encoded_sum import build_encoded_sum
from equipoise.compression.worker_layout import WorkerLayout
from equipoise.config import TrainConfig
from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.training.gradient_sums.compressed_sync import EncodedSync
from equipoise.training.gradient_sync import SumTraffic
from equipoise.training.local_sgd.state_average import StateAverage
from equipoise.training.step_timer import StepTimer


class EncodedAverage(StateAverage):
    """Average of tensors of which the first ones travel as encoded changes."""

    def __init__(
        self, config: TrainConfig, encoded: Mapping[str, Tensor], exact: Sequence[Tensor], timer: StepTimer
    ) -> None:
        """Prepare averages of tensors like these, over the workers of the options."""
        layout = WorkerLayout(config.workers, timer.rank, timer.workers)
        # the change of a tensor passes as the gradient of a slot
        self.encoded_slots = {name: nn.Parameter(tensor.detach()) for name, tensor in encoded.items()}
        build_sum = partial(build_encoded_sum, config.compression_method)
        self.encoded_sync = EncodedSync(config, self.encoded_slots, layout, timer, build_sum)
        self.first_worker, self.micros = layout.hosted.start, config.grad_accumulation
        self.agreed = [tensor.clone() for tensor in encoded.values()]
        self.num_weights = sum(name.startswith("model.") for name in encoded)
        self.num_tensors = len(encoded) + len(exact)
        super().__init__(exact, config, len(layout.hosted), timer)
        if timer.workers == 1 or config.all_reduce == "auto":
            self.traffic = self._add_encoded(self.traffic)

    def set_algorithms(self, algorithms: Sequence[AppliedAllReduce]) -> None:
        """Sum what is not encoded by these algorithms from now on."""
        super().set_algorithms(algorithms)
        self.traffic = self._add_encoded(self.traffic)

    def _add_encoded(self, traffic: SumTraffic) -> SumTraffic:
        encoded = self.encoded_sync.traffic
        return SumTraffic(traffic.sent_bytes + encoded.sent_bytes, traffic.rounds + encoded.rounds)

    def begin(self, tensors: list[Tensor]) -> None:
        """Take the tensors that all workers have agreed on, from which they go different ways."""
        # before its first step an optimizer may have no moments yet: then `agreed` holds what they begin with
        count = len(self.agreed) if len(tensors) == self.num_tensors else self.num_weights
        torch._foreach_copy_(self.agreed[:count], tensors[:count])

    def add_worker(self, index: int, tensors: list[Tensor]) -> None:
        """Encode the change of a hosted worker's tensors; those after them are added as they are."""
        count = len(self.agreed)
        changes = torch._foreach_sub(tensors[:count], self.agreed)
        for slot, change in zip(self.encoded_slots.values(), changes, strict=True):
            slot.grad = change
        super().add_worker(index, tensors[count:])
        self.encoded_sync.end_micro_batch((self.first_worker + index + 1) * self.micros - 1)

    def average(self) -> list[Tensor]:
        """Return the averages over all workers; the next ones overwrite them."""
        totals = [slot.grad for slot in self.encoded_slots.values() if slot.grad is not None]
        averages = torch._foreach_add(self.agreed, totals, alpha=1 / self.num_workers)
        return [*averages, *super().average()]

    def list_errors(self) -> dict[str, Tensor]:
        """Return what this process keeps of what was left out of changes, by the names of `kept_errors`."""
        return self.encoded_sync.list_errors()

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` returned in the processes of a checkpoint; start anew without any."""
        self.encoded_sync.load_errors(tensors)
