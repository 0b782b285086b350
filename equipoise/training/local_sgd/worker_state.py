"""What a worker changes as it takes steps: weights, the state of the optimizer, and buffers such as statistics."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer

COUNTER_KEYS = ("step", "steps")  # of an optimizer's state: equal on all workers


class SavedState(NamedTuple):
    """Copies of what a worker changes."""

    tensors: list[Tensor]
    """weights and buffers"""
    moments: dict[str, Tensor]
    """state of the optimizer by name; some optimizers have none before their first step"""


class WorkerState:
    """State of the worker that the model and the optimizer hold at the moment."""

    def __init__(self, model: nn.Module, optimizer: RunOptimizer) -> None:
        self.optimizer = optimizer
        self.weights = [parameter.detach() for parameter in optimizer.named_parameters.values()]
        self.buffers = list(model.buffers())
        self.statistics = [buffer for buffer in self.buffers if buffer.is_floating_point()]

    def list_averaged(self) -> list[Tensor]:
        """Return what workers average: weights, then moments of the optimizer, then running statistics."""
        return [*self.weights, *select_moments(self.optimizer), *self.statistics]

    def list_averaged_later(self, config: TrainConfig) -> list[Tensor]:
        """Return tensors like those that `list_averaged` returns after the first step."""
        if all(self.optimizer.optimizer.state.get(p) for p in self.optimizer.named_parameters.values()):
            return self.list_averaged()
        copies = {name: nn.Parameter(p.detach().clone()) for name, p in self.optimizer.named_parameters.items()}
        optimizer = RunOptimizer(config, copies)
        optimizer.step(config.lr)  # of copies: it makes the moments
        return [*self.weights, *select_moments(optimizer), *self.statistics]

    def load_averages(self, averages: list[Tensor]) -> None:
        """Take averages of what `list_averaged` returns; those that are its tensors are in place already."""
        tensors = self.list_averaged()
        if averages[0] is not tensors[0]:
            torch._foreach_copy_(tensors, averages)

    def save(self) -> SavedState:
        """Return copies of all that the next step depends on."""
        tensors = [tensor.clone() for tensor in (*self.weights, *self.buffers)]
        return SavedState(tensors, {name: value.clone() for name, value in self.optimizer.state_dict().items()})

    @torch.no_grad()
    def restore(self, saved: SavedState) -> None:
        """Bring back what `save` returned."""
        torch._foreach_copy_([*self.weights, *self.buffers], saved.tensors)
        self.optimizer.load_state_dict(saved.moments)
        if not saved.moments:  # such an optimizer starts anew with its next step
            for parameter in self.optimizer.named_parameters.values():
                if self.optimizer.optimizer.state.get(parameter):
                    del self.optimizer.optimizer.state[parameter]


def select_moments(optimizer: RunOptimizer) -> list[Tensor]:
    """Return the state of an optimizer that workers average, by name: floating-point tensors but counts of steps."""
    return [
        value
        for name, value in sorted(optimizer.state_dict().items())  # a resumed optimizer may have another order
        if value.is_floating_point() and name.rpartition(".")[2] not in COUNTER_KEYS
    ]
