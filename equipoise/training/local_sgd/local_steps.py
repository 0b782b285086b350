"""Steps that workers take on their own, with an average of what they learned at intervals: local SGD and DiLoCo.

Local SGD: Stich, 2018, arXiv:1805.09767. Weights, moments of the optimizer and running statistics of batch
normalisation are averaged, so that one checkpoint holds the state of all, and any number of processes can resume it.
A process hosts one or more of the workers that the options name. Several take turns, a whole interval each, from the
same state; their micro-batches, augmentation and dropout are those that processes of their own would have.
A worker clips its own gradient (`--clip-norm`), because no other gradient is known to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from equipoise.runs.record import Lap
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.local_sgd.outer_step import OuterStep
from equipoise.training.local_sgd.state_average import StateAverage
from equipoise.training.local_sgd.worker_state import WorkerState
from equipoise.training.steps.gradient_step import GradientStep


class LocalSteps:
    """Steps of the workers that this process hosts, and their averages over all processes."""

    arrival_lines: list[str] | None = None  # no log of arrivals: workers exchange at the same time

    def __init__(
        self,
        gradient_step: GradientStep,
        state: WorkerState,
        average: StateAverage,
        outer_step: OuterStep | None,
        workers: Sequence[range],
        interval: int,
    ) -> None:
        """Take the steps of workers, each given by the indices of its micro-batches."""
        self.gradient_step, self.state, self.sync, self.outer_step = gradient_step, state, average, outer_step
        self.workers, self.interval, self.optimizer = workers, interval, gradient_step.optimizer
        self.saved = state.save() if len(workers) > 1 else None  # now, for a check of the memory to see it
        self.batches: list[Iterator[InputsAndTargets]] = []

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the batches of the step after `step` others, from the weights that the model has now."""
        self.batches = [loader.train_batches(micro_indices, step) for micro_indices in self.workers]
        if self.outer_step:
            self.outer_step.begin()

    def run(self, step: int, num_steps: int, lr_at: Callable[[int], float]) -> Tensor:
        """Take whole intervals after `step` other steps; return the losses by step and micro-batch of this process."""
        starts = range(step, step + num_steps, self.interval)
        return torch.cat([self._run_interval(start, lr_at) for start in starts])

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with what its workers exchanged, per step."""
        sent_bytes, rounds = self.sync.traffic
        return replace(
            lap,
            all_reduce=self.sync.algorithms,
            sent_bytes=round(sent_bytes / self.interval),
            rounds=rounds / self.interval,
            average_interval=self.interval,
            averages_statistics=self.state.has_batch_norm,
        )

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """Return what the next average depends on besides model and optimizer, by part of a checkpoint and name."""
        outer = {"outer": self.outer_step.state_dict()} if self.outer_step else {}
        return {"compression": self.sync.state_dict()} | outer

    def load_state_dict(self, parts: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Restore the state from the tensors of `state_dict`."""
        self.sync.load_state_dict(parts["compression"])
        if self.outer_step:
            self.outer_step.load_state_dict(parts["outer"])

    def list_errors(self) -> dict[str, Tensor]:
        """Return what compression left out and only this process keeps, by name."""
        return self.sync.list_errors()

    def load_errors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take what `list_errors` returned in the processes of a checkpoint."""
        self.sync.load_errors(tensors)

    def _run_interval(self, step: int, lr_at: Callable[[int], float]) -> Tensor:
        if self.saved:
            self.saved = None  # frees its memory first
            self.saved = self.state.save()
        self.sync.begin(self.state.list_averaged())
        losses = []
        for index, (micro_indices, batches) in enumerate(zip(self.workers, self.batches, strict=True)):
            if self.saved and index:
                self.state.restore(self.saved)
            losses += [
                loss
                for later_step in range(step, step + self.interval)
                for loss in self.gradient_step.run(batches, micro_indices, later_step, lr_at(later_step + 1))
            ]
            self.sync.add_worker(index, self.state.list_averaged())
        self._average()
        return torch.stack(losses).view(len(self.workers), self.interval, -1).transpose(0, 1).flatten(1)

    @torch.no_grad()
    def _average(self) -> None:
        """Give the model and the optimizer the average over all workers, or what the outer step makes of it."""
        averages = self.sync.average()
        timer = self.gradient_step.timer
        mark = timer.mark()
        if self.outer_step:
            self.outer_step.apply(averages[: len(self.state.weights)])
        self.state.load_averages(averages)
        timer.record_span("compute", mark)
