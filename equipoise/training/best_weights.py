"""Weights that a run keeps: the last ones or those of its best evaluation, and of either the average over steps."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from equipoise.training.recipes.averaged_weights import AveragedWeights


class WeightCopy(Protocol):
    """Copy of what this process holds of the weights, by name; empty until it is made."""

    tensors: dict[str, Tensor]

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take the copy of a checkpoint."""


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

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take the copy of a checkpoint."""
        self.tensors = tensors

    @torch.no_grad()
    def load_into_model(self) -> None:
        """Give the model the weights of the copy."""
        for name, value in self.list_weights().items():
            value.copy_(self.tensors[name])


class KeptWeights:
    """Weights beside those that a run trains: of its best evaluation, and the average over its steps, if any."""

    def __init__(self, best: BestWeights | None, average: "AveragedWeights | None") -> None:
        self.best, self.average = best, average

    def list_copies(self) -> dict[str, WeightCopy]:
        """Return the copies that a checkpoint holds, by part of it."""
        copies = {"best": self.best, "average": self.average}
        return {part: copy for part, copy in copies.items() if copy}

    def give_evaluated(self) -> AbstractContextManager[None]:
        """Give the model what is evaluated for the time of a block: its own weights, or their average."""
        return self.average.in_model() if self.average else nullcontext()

    def keep_best(self) -> None:
        """Keep what was evaluated as the best so far, if the run keeps the best."""
        if self.best:
            with self.give_evaluated():
                self.best.copy_from_model()

    def load_into_model(self) -> None:
        """Give the model what the run keeps, for good."""
        if self.best:
            self.best.load_into_model()
        elif self.average:
            self.average.load_into_model()
        self.best = self.average = None
