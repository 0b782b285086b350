"""Steps for which workers exchange their gradients every time."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from equipoise.optimizers.saved_optimizer import SavedOptimizer
from equipoise.runs.record import Lap
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.steps.gradient_step import GradientStep


class ExactSteps:
    """Steps of all workers together, along the sum of their gradients or what compression makes of it."""

    interval = 1  # steps from one exchange to the next
    arrival_lines: list[str] | None = None  # no log of arrivals: workers exchange at the same time

    def __init__(self, gradient_step: GradientStep, micro_indices: range) -> None:
        self.gradient_step, self.micro_indices = gradient_step, micro_indices
        self.sync = gradient_step.gradient_sync
        self.optimizer: SavedOptimizer = gradient_step.optimizer
        self.batches: Iterator[InputsAndTargets] = iter(())
        self.after_step: Callable[[], None] | None = None

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the batches of the step after `step` others."""
        self.batches = loader.train_batches(self.micro_indices, step)
        self.gradient_step.prefetched_batch = None

    def run(self, step: int, num_steps: int, lr_at: Callable[[int], float]) -> Tensor:
        """Take the steps after `step` others, and return the losses by step and micro-batch of this process."""
        losses: list[Tensor] = []
        for index in range(step, step + num_steps):
            losses += self.gradient_step.run(self.batches, self.micro_indices, index, lr_at(index + 1))
            if self.after_step:
                self.after_step()
        return torch.stack(losses).view(num_steps, -1)

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with what its workers exchanged in a step."""
        sent_bytes, rounds = self.sync.traffic
        return replace(lap, all_reduce=self.sync.algorithms, sent_bytes=sent_bytes, rounds=float(rounds))

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return what the next exchange of all processes depends on, by part of a checkpoint and name."""
        return {"compression": self.sync.state_dict()}

    def load_state_dict(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the state from the tensors of `state_dict`."""
        self.sync.load_state_dict(parts["compression"])

    def list_errors(self) -> dict[str, Tensor]:
        """Return what compression left out and only this process keeps, by name."""
        return self.sync.list_errors()

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` returned in the processes of a checkpoint."""
        self.sync.load_errors(tensors)
