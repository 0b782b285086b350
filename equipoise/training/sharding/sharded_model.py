"""What a worker holds of the model and what it does with it, for each kind of --sharding; here the whole of it."""

from collections.abc import Callable, Iterator, Mapping

import torch.distributed as dist
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.sharding.tensor_slice import TensorSlice
from equipoise.training.sharding.worker_mesh import WorkerMesh
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.steps.build_steps import TrainSteps, build_steps
from equipoise.training.torch_state import collect_weights, load_weights
from equipoise.workloads.batch import Batch, call_model


class ShardedModel:
    """Whole model on every worker. Subclasses hold a part of it and override what that changes."""

    needs_equal_batches = False
    """whether all workers evaluate equal numbers of batches, because they exchange weights for each"""
    measures_noise = True
    """whether steps give the gradient norms that a noise scale is made of"""

    def __init__(self, config: TrainConfig, model: nn.Module, mesh: WorkerMesh) -> None:
        self.config, self.mesh = config, mesh
        self.module = model
        """what this worker computes with; its modules keep their names and identity"""
        self.parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
        """trainable parts that this worker computes gradients of, plain tensors by the names of the whole model"""

    def build_optimizer(self, lr_scales: Mapping[str, float]) -> RunOptimizer:
        """Build the optimizer of what this worker updates."""
        return RunOptimizer(self.config, self.parameters, dict(lr_scales))

    def build_steps(
        self, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer, max_examples: int
    ) -> TrainSteps:
        """Build the steps of this worker."""
        return build_steps(self.config, backward_pass, optimizer, timer, max_examples)

    def try_micro_batch(
        self, backward_pass: BackwardPass, inputs: Batch, targets: Batch, step: int, micro_index: int
    ) -> None:
        """Compute what this worker computes of a micro-batch, without an exchange, to see whether there is memory."""
        backward_pass.run(inputs, targets, step, micro_index)

    def list_weights(self) -> dict[str, Tensor]:
        """Return the weights and buffers that this worker holds, sharing their memory, by the whole model's names."""
        return collect_weights(self.module)

    def find_slice(self, name: str) -> TensorSlice | None:
        """Return which part of a weight or buffer this worker holds, or None if it holds all of it."""
        return None

    def is_saved_here(self, name: str) -> bool:
        """Return whether this worker is the one that saves what it holds of a weight or buffer."""
        return self.mesh.rank == 0

    def is_state_saved_here(self, name: str) -> bool:
        """Return whether this worker saves the optimizer's state of a weight, or of its part of it."""
        return self.is_saved_here(name)

    def holds_state(self, name: str) -> bool:
        """Return whether this worker's optimizer has the state of a weight, or of its part of it."""
        return True

    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Load weights and buffers of the whole model."""
        load_weights(self.module, tensors)

    def compute_rows(
        self, inputs: Batch, targets: Batch, metric: Callable[[Batch, Batch], Tensor]
    ) -> tuple[Tensor, Batch | None]:
        """Return a metric's rows of a batch, on all workers of a replica, and the outputs where they are known.

        Without gradients, and in evaluation mode.
        """
        outputs = call_model(self.module, inputs)
        return metric(outputs, targets), outputs

    def average_buffers(self) -> None:
        """Average running statistics over workers, so that one checkpoint holds the state of all."""
        for buffer in self.module.buffers():
            if buffer.is_floating_point():
                total = buffer.clone()
                dist.all_reduce(total)
                buffer.copy_(total / self.mesh.workers)

    def gather_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights and buffers of the whole model by name, one at a time; all workers do it together."""
        yield from self.list_weights().items()
