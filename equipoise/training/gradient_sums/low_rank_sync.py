"""Sum gradients over workers by PowerSGD."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from equipoise.compression.kept_errors import has_errors, load_process_error, process_error_name
from equipoise.compression.low_rank_sum import LowRankSum
from equipoise.compression.worker_layout import WorkerLayout
from equipoise.config import TrainConfig
from equipoise.rng import derive_seed
from equipoise.training.gradient_sums.compressed_sync import CompressedSync, NamedParameters, common_dtype
from equipoise.training.gradient_sync import GradientBucket
from equipoise.training.step_timer import SpanTimer

FIRST_Q_KEY = 1 << 40  # no step or epoch has this number


class LowRankSync(CompressedSync):
    """Sum of gradients by PowerSGD: all P in one bucket with what goes exact, then all Q in another."""

    def __init__(
        self, config: TrainConfig, parameters: NamedParameters, layout: WorkerLayout, timer: SpanTimer, rank: int
    ) -> None:
        super().__init__(config, layout, timer)
        self.parameters = parameters
        tensors = list(parameters.values())
        dtype = common_dtype(tensors)
        seed = derive_seed(config.seed, FIRST_Q_KEY)  # else Q would begin with the numbers of the first weights
        self.low_rank_sum = LowRankSum(tensors, rank, layout.processes, seed, config.error_feedback, dtype)
        flats = (self.low_rank_sum.flat_p, self.low_rank_sum.flat_q)
        self.buckets = [GradientBucket([nn.Parameter(flat)], self.workers) for flat in flats]
        for bucket, flat in zip(self.buckets, flats, strict=True):
            bucket.flat_gradients = flat  # summed in place
        self.sums = [torch.empty_like(parameter, requires_grad=False) for parameter in tensors]
        self.matrix_names = [name for name, low in zip(parameters, self.low_rank_sum.is_low_rank, strict=True) if low]
        if self.workers > 1 and config.all_reduce != "auto":
            self.set_algorithms([config.all_reduce] * len(self.buckets))

    def _finish_worker(self, index: int, is_last: bool) -> None:
        if not is_last:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters.values()]
        self.low_rank_sum.start(gradients)
        self._sum_bucket(self.buckets[0])
        self.low_rank_sum.project()
        self._sum_bucket(self.buckets[1])
        decoded = self.low_rank_sum.finish()
        for parameter, gradient, total in zip(self.parameters.values(), self.sums, decoded, strict=True):
            fits = total.dtype == parameter.dtype and total.stride() == parameter.stride()
            parameter.grad = total if fits else gradient.copy_(total)

    def _sum_bucket(self, bucket: GradientBucket) -> None:
        """Sum a bucket over processes."""
        if self.workers > 1:
            self._exchange(lambda: bucket.start_exchange().wait())
            bucket.sum_received_rows()

    def state_dict(self) -> dict[str, Tensor]:
        """Return Q of each matrix as q.NAME: the same on all processes."""
        matrices = zip(self.matrix_names, self.low_rank_sum.q_matrices, strict=True)
        return {f"q.{name}": q.clone() for name, q in matrices}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the state from the tensors of `state_dict`; start anew without any."""
        if not tensors:
            return
        for name, q in zip(self.matrix_names, self.low_rank_sum.q_matrices, strict=True):
            q.copy_(tensors[f"q.{name}"])

    def list_errors(self) -> dict[str, Tensor]:
        """Return what this process has left out of each matrix, by the names of `kept_errors`."""
        rank, processes = self.layout.rank, self.layout.processes
        matrices = zip(self.matrix_names, self.low_rank_sum.errors, strict=False)  # none without error feedback
        return {process_error_name(rank, processes, name): error for name, error in matrices}

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what this process had left out; other processes than those of a checkpoint share their sum."""
        if not has_errors(tensors):
            return
        for name, error in zip(self.matrix_names, self.low_rank_sum.errors, strict=False):
            load_process_error(tensors, self.layout.rank, self.layout.processes, name, error)
