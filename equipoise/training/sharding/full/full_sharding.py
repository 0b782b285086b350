"""Weights, gradients and state of the optimizer in parts (FSDP, ZeRO-3): each worker keeps one of each weight.

A worker gathers the weights of a unit of the model before it computes with them and drops them afterwards, in forward
and again in backward, and receives the sum of its part of the gradients. With m bytes on p workers it sends
3 (p - 1)/p m bytes for each micro-batch.

torch's `fully_shard` does so. The optimizer has plain tensors, which share the memory of torch's own.
"""

from collections.abc import Iterator, Mapping
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.sharding.full.counted_exchanges import count_exchanges
from equipoise.training.sharding.full.exchange_log import ExchangeLog
from equipoise.training.sharding.full.model_units import list_units, require_divisible
from equipoise.training.sharding.full.part_gradient_sync import PartGradientSync
from equipoise.training.sharding.full.part_steps import PartGradientStep, PartSteps
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.sharding.tensor_slice import TensorSlice
from equipoise.training.sharding.worker_mesh import WorkerMesh
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.torch_state import collect_weights


class FullSharding(ShardedModel):
    """Part of every weight; the workers of a replica have the parts of one model."""

    needs_equal_batches = True

    def __init__(self, config: TrainConfig, model: nn.Module, mesh: WorkerMesh) -> None:
        require_divisible(model)
        device = next(model.parameters()).device
        self.device_mesh = build_device_mesh(mesh, device)
        self.slices = {name: slice_rows(value, mesh) for name, value in collect_weights(model).items()}
        make_contiguous(model)
        for unit in [*list_units(model), model]:
            fully_shard(unit, mesh=self.device_mesh, reshard_after_forward=True)
        super().__init__(config, model, mesh)
        self.sharded_parameters = self.parameters
        self.parameters = {name: nn.Parameter(get_part(value)) for name, value in self.sharded_parameters.items()}
        for name in set(self.slices) - {name for name, _ in model.named_parameters()}:
            del self.slices[name]  # buffers, which each worker has as a whole

    def build_steps(
        self, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer, max_examples: int
    ) -> PartSteps:
        """Build the steps of this worker."""
        log, root = ExchangeLog(timer), cast(FSDPModule, self.module)
        for unit in self.module.modules():
            if isinstance(unit, FSDPModule):
                count_exchanges(unit, log, self.mesh.num_replicas)
                unit.set_gradient_divide_factor(1.0)  # each worker divides its loss already
                unit.set_force_sum_reduction_for_comms(True)
        root.set_reduce_scatter_unused_params(True)  # else workers would wait for each other where one has no gradient
        part_group = self.device_mesh.get_group(self.device_mesh.ndim - 1)
        sync = PartGradientSync(root, self.mesh, part_group, self.parameters, self.sharded_parameters, log)
        step = PartGradientStep(self.config, backward_pass, sync, optimizer, timer)
        return PartSteps(step, sync, list_own_micro_batches(self.config, self.mesh.rank, self.mesh.workers), log)

    def list_weights(self) -> dict[str, Tensor]:
        """Return this worker's parts of the weights, and the buffers, sharing their memory."""
        return {name: get_part(value) for name, value in collect_weights(self.module).items()}

    def find_slice(self, name: str) -> TensorSlice | None:
        """Return which rows of a weight this worker holds, or None of a buffer, which it holds all of."""
        return self.slices.get(name)

    def is_saved_here(self, name: str) -> bool:
        """Return whether this worker saves its part of a weight, as those of the first replica do, or a buffer."""
        return self.mesh.replica == 0 if name in self.slices else self.mesh.rank == 0

    @torch.no_grad()
    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Load this worker's parts of the weights of the whole model, and its buffers."""
        parts = self.list_weights()
        if parts.keys() != tensors.keys():
            raise RuntimeError(f"the model has {sorted(parts)}, not {sorted(tensors)}")
        for name, value in parts.items():
            place = self.find_slice(name)
            value.copy_(tensors[name] if place is None else place.cut(tensors[name]))

    def gather_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights and buffers of the whole model by name, one at a time; all workers do it together."""
        for name, value in collect_weights(self.module).items():
            yield name, value.full_tensor() if isinstance(value, DTensor) else value


def build_device_mesh(mesh: WorkerMesh, device: torch.device) -> DeviceMesh:
    """Return the workers as torch has them: a row for each replica, or a single row without dimensions around it."""
    ranks = torch.arange(mesh.workers).view(mesh.num_replicas, mesh.num_parts)
    if mesh.num_replicas == 1:
        return DeviceMesh(device.type, ranks[0], mesh_dim_names=("part",))
    return DeviceMesh(device.type, ranks, mesh_dim_names=("replica", "part"))


def slice_rows(value: Tensor, mesh: WorkerMesh) -> TensorSlice:
    """Return which rows of a tensor a worker holds: equal numbers, fewer on the last workers where they do not fit."""
    rows = len(value) if value.ndim else 0
    length = -(-rows // mesh.num_parts)
    start = min(mesh.part * length, rows)
    ranges = ((start, min(length, rows - start)),) if start < rows else ()
    return TensorSlice(tuple(value.shape), 0, ranges)


@torch.no_grad()
def make_contiguous(model: nn.Module) -> None:
    """Give weights the memory layout that has their rows one after another."""
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()


def get_part(value: Tensor) -> Tensor:
    """Return this worker's part of a weight, sharing its memory, or a tensor that it holds as a whole."""
    value = value.detach()
    return value.to_local() if isinstance(value, DTensor) else value
