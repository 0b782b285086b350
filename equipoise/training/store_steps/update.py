"""Update of the weights along the mean of several gradients of tickets."""

from collections.abc import Callable, Sequence
from fractions import Fraction

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer


def update_lr(tickets: Sequence[int], tickets_per_step: int, lr_at: Callable[[int], float]) -> float:
    """Return the learning rate of an update with these tickets, so that those of a step move as far as one step does.

    It is the mean of the rates that the schedule has for the steps of the tickets, times their share of a step.
    """
    rates = [lr_at(ticket // tickets_per_step + 1) for ticket in tickets]
    # exact, so that the update of a whole step has the rate of the step to the last bit
    return float(sum(map(Fraction, rates)) / tickets_per_step)


class UpdateStep:
    """Step of the optimizer along the mean of gradients, clipped where workers do not clip their own."""

    def __init__(self, config: TrainConfig, optimizer: RunOptimizer) -> None:
        self.optimizer, self.parameters = optimizer, list(optimizer.named_parameters.values())
        self.clip_norm = 0.0 if config.sync_method.staleness else config.clip_norm

    @torch.no_grad()
    def apply(self, gradients: Sequence[list[Tensor]], lr: float) -> None:
        """Update the weights with gradients in the order of their tickets; the first of them is overwritten."""
        mean = gradients[0]
        for others in gradients[1:]:
            torch._foreach_add_(mean, others)
        if len(gradients) > 1:
            torch._foreach_div_(mean, len(gradients))
        for parameter, gradient in zip(self.parameters, mean, strict=True):
            parameter.grad = gradient
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self.optimizer.step(lr)
        for parameter in self.parameters:
            parameter.grad = None
