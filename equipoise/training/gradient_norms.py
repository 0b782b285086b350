"""Squared gradient norms at two batch sizes, from which the gradient noise scale is estimated."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from equipoise.workloads.batch import Batch, count_examples, split_batch


class GradientNorms:
    """Squared gradient norms of a lap, kept on the device until they are read."""

    def __init__(self) -> None:
        self.num_draws = 0
        self.local_norms: list[Tensor] = []
        self.total_norms: list[Tensor] = []
        self.is_of_micro_batch = False
        """whether local norms are those of one micro-batch, instead of all that a worker has in a step"""

    def add_draw(self, local_norm: Tensor, total_norm: Tensor) -> None:
        """Add the two norms of one step."""
        self.local_norms.append(local_norm)
        self.total_norms.append(total_norm)
        self.num_draws += 1

    def pop_sums(self) -> tuple[float, float, int]:
        """Return the sums of the local and total norms and the number of steps they come from; reset all three."""
        local, total = (
            float(torch.stack(values).sum()) if values else 0.0 for values in (self.local_norms, self.total_norms)
        )
        draws = self.num_draws
        self.num_draws, self.local_norms, self.total_norms = 0, [], []
        return local, total, draws


def half_batch_norms(
    model: nn.Module, loss_function: Callable[[Any, Any], Tensor], inputs: Batch, targets: Batch
) -> tuple[Tensor, Tensor]:
    """Return the mean squared norm of the gradients of a batch's two halves, and the squared norm of their mean.

    For one worker, which has no other worker's gradient to compare with. The two backward passes
    beside the training step leave it as it is: no gradient is stored, and running statistics
    are updated in a copy.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    half = count_examples(inputs) // 2
    halves = []
    for part_inputs, part_targets in list(zip(split_batch(inputs, half), split_batch(targets, half), strict=True))[:2]:
        call = partial(functional_call, model, buffers)
        outputs = call((), dict(part_inputs)) if isinstance(part_inputs, Mapping) else call(part_inputs)
        loss = loss_function(outputs, part_targets)
        halves.append(flat_gradient(loss, parameters))
    first, second = halves
    mean = (first + second).div_(2)
    return (torch.dot(first, first) + torch.dot(second, second)) / 2, torch.dot(mean, mean)


def flat_gradient(loss: Tensor, parameters: list[nn.Parameter]) -> Tensor:
    """Return the gradient of a loss as one vector, without parameters that it does not depend on."""
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return torch.cat([gradient.flatten() for gradient in gradients if gradient is not None])
