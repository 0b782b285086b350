"""State of the optimizer in parts (ZeRO-1): each worker keeps that of some weights, updates these and sends them.

Gradients are summed as without sharding. After that each worker takes the step of its own weights, whole ones, so that
any optimizer will do, and sends them to the others. Why not by torch: docs/decisions/0008-optimizer-sharding.md.
"""

from collections.abc import Mapping

from torch import nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.sharding.optimizer.part_optimizer import PartOptimizer
from equipoise.training.sharding.optimizer.part_state_steps import PartStateSteps
from equipoise.training.sharding.optimizer.shared_weights import SharedWeights
from equipoise.training.sharding.optimizer.weight_owners import assign_owners, gather_traffic
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.sharding.worker_mesh import WorkerMesh
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass


class OptimizerSharding(ShardedModel):
    """Whole model, and a part of the optimizer's state."""

    def __init__(self, config: TrainConfig, model: nn.Module, mesh: WorkerMesh) -> None:
        super().__init__(config, model, mesh)
        sizes = {name: parameter.nbytes for name, parameter in self.parameters.items()}
        names_by_owner = assign_owners(sizes, mesh.workers)
        self.own_names = names_by_owner[mesh.rank]
        self.weights = SharedWeights([[self.parameters[name] for name in names] for names in names_by_owner])

    def build_optimizer(self, lr_scales: Mapping[str, float]) -> PartOptimizer:
        """Build the optimizer of the weights that this worker updates."""
        return PartOptimizer(self.config, self.parameters, self.own_names, lr_scales, self.weights)

    def build_steps(
        self, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer, max_examples: int
    ) -> PartStateSteps:
        """Build the steps of this worker."""
        self.weights.timer = timer
        return PartStateSteps(
            self.config, backward_pass, optimizer, timer, gather_traffic(self.weights.list_part_bytes(timer.workers))
        )

    def is_state_saved_here(self, name: str) -> bool:
        """Return whether this worker saves the state of a weight: of those that it updates."""
        return self.holds_state(name)

    def holds_state(self, name: str) -> bool:
        """Return whether this worker updates a weight."""
        return name in self.own_names
