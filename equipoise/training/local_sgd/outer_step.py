"""Outer step of DiLoCo (Douillard et al., 2023, arXiv:2311.08105): Nesterov momentum along the change of the average.

With d = w0 - mean(w), the change of the average weights since the last outer step, turned as a gradient is:
v <- momentum v + d and w <- w0 - lr (d + momentum v). With lr 1 and momentum 0 the new weights are the average.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from equipoise.optimizers.run_optimizer import RunOptimizer


class OuterStep:
    """Optimizer of the weights that workers agree on, from one average to the next."""

    def __init__(self, optimizer: RunOptimizer, lr: float, momentum: float) -> None:
        self.names = list(optimizer.named_parameters)
        self.weights = [parameter.detach() for parameter in optimizer.named_parameters.values()]
        self.lr, self.momentum = lr, momentum
        self.last_weights = [weight.clone() for weight in self.weights]
        self.velocities = [torch.zeros_like(weight) for weight in self.weights]

    def begin(self) -> None:
        """Take the weights of the model as those of the last outer step: at the start of a run, and after a resume."""
        torch._foreach_copy_(self.last_weights, self.weights)

    def apply(self, averages: list[Tensor]) -> None:
        """Replace the average weights by those after the outer step."""
        changes = torch._foreach_sub(self.last_weights, averages)
        torch._foreach_mul_(self.velocities, self.momentum)
        torch._foreach_add_(self.velocities, changes)
        torch._foreach_add_(changes, self.velocities, alpha=self.momentum)
        torch._foreach_add_(self.last_weights, changes, alpha=-self.lr)
        torch._foreach_copy_(averages, self.last_weights)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the momentum by the name of its parameter."""
        return dict(zip(self.names, self.velocities, strict=True))

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the momentum from the tensors of `state_dict`."""
        for name, velocity in zip(self.names, self.velocities, strict=True):
            velocity.copy_(tensors[name])
