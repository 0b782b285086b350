"""What a worker changes as it takes steps: weights, the state of the optimizer, and buffers such as statistics."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer

COUNTER_KEYS = ("step", "steps")  # of an optimizer's state: equal on all workers
SIGNED_KEYS = ("momentum", "mean", "momentum_buffer", "exp_avg")  # first moments, of any sign


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
        self.has_batch_norm = any(isinstance(m, _BatchNorm) and m.training for m in model.modules())
        self.statistics = [buffer for buffer in self.buffers if buffer.is_floating_point()]

    def list_averaged(self) -> list[Tensor]:
        """Return what workers average: weights, moments of any sign, other moments, and running statistics."""
        return self._join(self.optimizer)

    def list_averaged_later(self, config: TrainConfig) -> list[Tensor]:
        """Return tensors like those that `list_averaged` returns after the first step."""
        return self._join(self._optimizer_after_step(config))

    def name_signed_later(self, config: TrainConfig) -> dict[str, Tensor]:
        """Return those of `list_averaged_later` that may have any sign, which come first, by name."""
        weights = {f"model.{name}": p.detach() for name, p in self.optimizer.named_parameters.items()}
        signed, _ = split_moments(self._optimizer_after_step(config))
        return weights | {f"optimizer.{name}": value for name, value in signed.items()}

    def _join(self, optimizer: RunOptimizer) -> list[Tensor]:
        signed, others = split_moments(optimizer)
        return [*self.weights, *signed.values(), *others.values(), *self.statistics]

    def _optimizer_after_step(self, config: TrainConfig) -> RunOptimizer:
        """Return the optimizer if it has all of its moments, or else one of copies of the weights."""
        if all(self.optimizer.optimizer.state.get(p) for p in self.optimizer.named_parameters.values()):
            return self.optimizer
        copies = {name: nn.Parameter(p.detach().clone()) for name, p in self.optimizer.named_parameters.items()}
        optimizer = RunOptimizer(config, copies)
        optimizer.step(config.lr)
        return optimizer

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


def split_moments(optimizer: RunOptimizer) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the moments that workers average by name, those of any sign and others; counts of steps are none."""
    moments = {
        name: value
        for name, value in sorted(optimizer.state_dict().items())  # a resumed optimizer may have another order
        if value.is_floating_point() and name.rpartition(".")[2] not in COUNTER_KEYS
    }
    signed = {name: value for name, value in moments.items() if name.rpartition(".")[2] in SIGNED_KEYS}
    return signed, {name: value for name, value in moments.items() if name not in signed}
