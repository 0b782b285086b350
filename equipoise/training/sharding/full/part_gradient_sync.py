"""Gradients of which each worker has a part, summed while backward runs."""

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from equipoise.registries.all_reduce_registry import AppliedAllReduce
from equipoise.training.gradient_norms import GradientNorms
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.sharding.full.exchange_log import ExchangeLog
from equipoise.training.sharding.worker_mesh import WorkerMesh


class PartGradientSync(GradientAllReduce):
    """Hand the parts that torch has summed to the tensors that the optimizer updates."""

    def __init__(
        self,
        module: FSDPModule,
        mesh: WorkerMesh,
        part_group: dist.ProcessGroup | None,
        parameters: Mapping[str, nn.Parameter],
        sharded_parameters: Mapping[str, nn.Parameter],
        log: ExchangeLog,
    ) -> None:
        super().__init__([], mesh.workers)
        self.module, self.mesh, self.part_group, self.log = module, mesh, part_group, log
        self.pairs = [(part, sharded_parameters[name]) for name, part in parameters.items()]
        self._sum_over_replicas(False)

    def set_algorithms(self, algorithms: Sequence[AppliedAllReduce]) -> None:
        """Do nothing: parts of gradients have an exchange of their own."""

    def begin_last_micro_batch(self, gradient_norms: GradientNorms | None) -> None:
        """Sum over replicas too from now on, and take norms: each worker's of this micro-batch alone."""
        self.gradient_norms = self.log.gradient_norms = gradient_norms
        self._sum_over_replicas(True)

    def launch_remaining(self) -> None:
        """Hand over the gradients: backward has summed them."""
        self._sum_over_replicas(False)
        self.log.gradient_norms = None
        for part, sharded in self.pairs:
            part.grad = sharded.grad.to_local() if isinstance(sharded.grad, DTensor) else None
            sharded.grad = None

    def wait_for_sums(self) -> None:
        """Take the norm of the sum of all workers' gradients: this worker's part of the mean over workers."""
        if self.gradient_norms:
            squares = [part.grad.square().sum() for part, _ in self.pairs if part.grad is not None]
            self.gradient_norms.total_norms.append(self.mesh.num_parts * torch.stack(squares).sum())
            self.gradient_norms.num_draws += 1
            self.gradient_norms.is_of_micro_batch = True

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> None:
        """Scale the parts of the gradient down, by the norm of all of them, to a norm where that is larger."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        square = nn.utils.get_total_norm(gradients).square()
        squares = [torch.empty_like(square) for _ in range(self.mesh.num_parts)]
        dist.all_gather(squares, square, group=self.part_group)
        nn.utils.clip_grads_with_norm_(parameters, max_norm, torch.stack(squares).sum().sqrt())

    def drop_gradients(self) -> None:
        """Forget gradients of a pass that was no part of a step."""
        for part, sharded in self.pairs:
            part.grad = sharded.grad = None

    def _sum_over_replicas(self, is_last: bool) -> None:
        """Let only the last micro-batch of a step sum over replicas."""
        if self.mesh.num_replicas > 1:
            self.module.set_requires_all_reduce(is_last)
