"""Norms of the weights of each layer and of what moves them, of which LARS and LAMB make a rate for each layer."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class LayerPlaces:
    """Places among parameters of those that have a rate of their own: matrices, not biases and norms."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.layers = [place for place, parameter in enumerate(parameters) if parameter.ndim > 1]
        self.others = [place for place, parameter in enumerate(parameters) if parameter.ndim <= 1]

    def stack_norms(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the Euclidean norm of the tensor of each layer."""
        return torch.stack(torch._foreach_norm([tensors[place] for place in self.layers]))

    def scale(self, tensors: Sequence[Tensor], ratios: Tensor | None, lr: float) -> None:
        """Multiply all tensors with a learning rate, and those of layers with their ratios too."""
        if ratios is not None:
            torch._foreach_mul_([tensors[place] for place in self.layers], list((ratios * lr).unbind()))
        if self.others:
            torch._foreach_mul_([tensors[place] for place in self.others], lr)


def divide_norms(numerator: Tensor, denominator: Tensor, *norms: Tensor) -> Tensor:
    """Return ratios of norms, or 1 where one of `norms` is zero, as of a layer that starts from zero."""
    is_usable = torch.stack(norms).amin(0) > 0
    return torch.where(is_usable, numerator / denominator, torch.ones_like(numerator))
