"""Average of the weights over the steps of a run, for --average-weights (Polyak and Juditsky, 1992).

After the first step it is the weights, and after each other one: average <- decay average + (1 - decay) weights. This
is torch's `get_ema_multi_avg_fn`, on what a worker holds of the model. Buffers, such as running statistics, are those
of the model.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from equipoise.training.step_timer import StepTimer


class AveragedWeights:
    """Average of trainable parameters; empty before the first step."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], decay: float, timer: StepTimer) -> None:
        self.parameters, self.timer = parameters, timer
        self.tensors: dict[str, Tensor] = {}
        self.update_average = get_ema_multi_avg_fn(decay)

    @torch.no_grad()
    def add_step(self) -> None:
        """Take the weights after a step into the average."""
        mark = self.timer.mark()
        if self.tensors:
            self.update_average(list(self.tensors.values()), list(self.parameters.values()), None)
        else:
            self.tensors = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        self.timer.record_span("compute", mark)

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the average of a checkpoint, in the memory layout of the weights."""
        self.tensors = {
            name: torch.empty_like(self.parameters[name], requires_grad=False).copy_(value)
            for name, value in tensors.items()
        }

    @contextmanager
    def in_model(self) -> Iterator[None]:
        """Give the model the average for the time of a block, and then its own weights again."""
        own = [parameter.detach().clone() for parameter in self.parameters.values()]
        self.load_into_model()
        try:
            yield
        finally:
            copy_tensors(own, list(self.parameters.values()))

    def load_into_model(self) -> None:
        """Give the model the average; leave it as it is before the first step."""
        if self.tensors:
            copy_tensors(list(self.tensors.values()), list(self.parameters.values()))


@torch.no_grad()
def copy_tensors(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    """Copy tensors into others; a worker may hold none."""
    if sources:
        torch._foreach_copy_(list(targets), list(sources))
