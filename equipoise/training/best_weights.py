"""Copy of a model's weights at its best evaluation so far, for --keep best."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


class BestWeights:
    """Weights and buffers of what a worker holds of a model, at its best evaluation; empty before the first.

    Every worker holds a copy on its CPU, so that whichever is the first after a restart can save it.
    """

    def __init__(self, list_weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Take a function that returns the weights and buffers by name, which share their memory with the model."""
        self.list_weights = list_weights
        self.tensors: dict[str, Tensor] = {}

    def copy_from_model(self) -> None:
        """Replace the copy by the model's weights as they are now."""
        self.tensors = {
            name: value.to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, value in self.list_weights().items()
        }

    @torch.no_grad()
    def load_into_model(self) -> None:
        """Give the model the weights of the copy."""
        for name, value in self.list_weights().items():
            value.copy_(self.tensors[name])
