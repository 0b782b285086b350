"""Copy of a model's weights at its best evaluation so far, for --keep best."""

import torch
from torch import Tensor, nn

from equipoise.training.torch_state import collect_weights, load_weights


class BestWeights:
    """Weights and buffers of a model at its best evaluation; empty before the first.

    Every worker holds a copy on its CPU, so that whichever is the first after a restart can save it.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.tensors: dict[str, Tensor] = {}

    def copy_from_model(self) -> None:
        """Replace the copy by the model's weights as they are now."""
        self.tensors = {
            name: value.to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, value in collect_weights(self.model).items()
        }

    def load_into_model(self) -> None:
        """Give the model the weights of the copy."""
        load_weights(self.model, self.tensors)
