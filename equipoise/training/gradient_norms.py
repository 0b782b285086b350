"""Squared gradient norms at two batch sizes, which the noise scale is made of."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call


class GradientNorms:
    """Norms gathered over a lap, on the device until they are taken."""

    def __init__(self) -> None:
        self.num_draws = 0
        self.local_norms: list[Tensor] = []
        self.total_norms: list[Tensor] = []

    def add_draw(self, local_norm: Tensor, total_norm: Tensor) -> None:
        """Count one draw."""
        self.local_norms.append(local_norm)
        self.total_norms.append(total_norm)
        self.num_draws += 1

    def pop_sums(self) -> tuple[float, float, int]:
        """Sum of the local norms, sum of the total norms, and steps they come from; starts anew."""
        local, total = (
            float(torch.stack(values).sum()) if values else 0.0 for values in (self.local_norms, self.total_norms)
        )
        draws = self.num_draws
        self.num_draws, self.local_norms, self.total_norms = 0, [], []
        return local, total, draws


def half_batch_norms(
    model: nn.Module, loss_function: Callable[[Tensor, Tensor], Tensor], images: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean squared norm of the gradients of two halves of a batch, and squared norm of their mean.

    For one worker, where no exchange shows a second gradient. Two backward passes beside
    the training step, which they leave as it would have been: no gradient is stored and
    running statistics move in a copy.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    half = len(labels) // 2
    halves = []
    for part in (slice(0, half), slice(half, 2 * half)):
        value = loss_function(functional_call(model, buffers, images[part]), labels[part])
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        halves.append(torch.cat([g.flatten() for g in gradients if g is not None]))
    first, second = halves
    mean = (first + second) / 2
    return (torch.dot(first, first) + torch.dot(second, second)) / 2, torch.dot(mean, mean)
