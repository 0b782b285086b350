"""Model of which each worker of a replica holds and computes a part of the large layers (--sharding tensor:K)."""

from collections.abc import Iterator, Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.sharding.tensor.layer_division import slice_sections
from equipoise.training.sharding.tensor.part_exchange import PartExchange
from equipoise.training.sharding.tensor.tensor_plan import divide_model, plan_tensor_sharding
from equipoise.training.sharding.tensor.tensor_steps import ReplicaSync, TensorSteps
from equipoise.training.sharding.tensor_slice import TensorSlice, join_parts
from equipoise.training.sharding.worker_mesh import WorkerMesh
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.steps.gradient_step import GradientStep
from equipoise.training.torch_state import load_weights


class TensorSharding(ShardedModel):
    """Parts of the large layers of a model, and the whole of the others."""

    measures_noise = False

    def __init__(self, config: TrainConfig, model: nn.Module, mesh: WorkerMesh) -> None:
        self.plan = plan_tensor_sharding(model, mesh.num_parts)
        device = next(model.parameters()).device
        groups = init_device_mesh(device.type, (mesh.num_replicas, mesh.num_parts), mesh_dim_names=("replica", "part"))
        self.replica_group, part_group = groups.get_group("replica"), groups.get_group("part")
        self.exchange = PartExchange(part_group, mesh.part, mesh.num_parts)
        if config.compile:
            self.exchange.leave_uncompiled()
        self.slices = divide_model(model, self.plan, self.exchange)
        super().__init__(config, model, mesh)

    def describe(self) -> str:
        """Return what this worker holds of the model, for people."""
        return self.plan.describe()

    def build_steps(
        self, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer, max_examples: int
    ) -> TensorSteps:
        """Build the steps of this worker."""
        divided = [parameter for name, parameter in self.parameters.items() if name in self.slices]
        parameters = list(optimizer.named_parameters.values())
        sync = ReplicaSync(parameters, divided, self.mesh.num_replicas, self.replica_group, self.exchange)
        step = GradientStep(self.config, backward_pass, sync, optimizer, timer)
        step.measures_noise = self.measures_noise
        micro_indices = list_own_micro_batches(self.config, self.mesh.data_rank, self.mesh.data_workers)
        return TensorSteps(step, micro_indices, self.exchange, timer)

    def find_slice(self, name: str) -> TensorSlice | None:
        """Return which part of a weight or buffer this worker holds, or None if it holds all of it."""
        return self.slices.get(name)

    def is_saved_here(self, name: str) -> bool:
        """Return whether this worker is the one that saves what it holds of a weight or buffer."""
        return self.mesh.replica == 0 if name in self.slices else self.mesh.rank == 0

    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Load this worker's parts of the weights and buffers of the whole model."""
        parts = {
            name: self.slices[name].cut(value) if name in self.slices else value for name, value in tensors.items()
        }
        load_weights(self.module, parts)

    def gather_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights and buffers of the whole model by name, one at a time; all workers do it together."""
        for name, value in self.list_weights().items():
            place = self.slices.get(name)
            yield name, value if place is None else self._gather(place, value)

    def _gather(self, place: TensorSlice, value: Tensor) -> Tensor:
        """Return a whole tensor of the parts that the workers of this replica hold."""
        value = value.contiguous()
        parts = [torch.empty_like(value) for _ in range(self.mesh.num_parts)]
        dist.all_gather(parts, value, group=self.exchange.group)
        sections = len(place.ranges)
        places = [
            slice_sections(place.shape, place.dim, sections, part, self.mesh.num_parts)
            for part in range(self.mesh.num_parts)
        ]
        return join_parts(zip(places, parts, strict=True))
