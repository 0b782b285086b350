"""Steps in which all workers run equally many micro-batches, because they gather the weights together."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.runs.record import Lap
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.sampler import rank_micro_batches
from equipoise.training.sharding.full.exchange_log import ExchangeLog
from equipoise.training.sharding.full.part_gradient_sync import PartGradientSync
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.training.steps.gradient_step import GradientStep


class PartGradientStep(GradientStep):
    """Step along gradients of which each worker has a part.

    A worker with fewer micro-batches than others first runs one of them without weight, as often as it needs to.
    """

    def __init__(
        self,
        config: TrainConfig,
        backward_pass: BackwardPass,
        sync: PartGradientSync,
        optimizer: RunOptimizer,
        timer: StepTimer,
    ) -> None:
        super().__init__(config, backward_pass, sync, optimizer, timer)
        counts = [
            len(rank_micro_batches(config.num_micro_batches, rank, timer.workers)) for rank in range(timer.workers)
        ]
        self.num_missing = max(counts) - counts[timer.rank]

    def run(self, batches: Iterator[InputsAndTargets], micro_indices: range, step: int, lr: float) -> list[Tensor]:
        """Take the step after `step` others, and return the mean loss of each of these micro-batches."""
        if self.num_missing:
            mark = self.timer.mark()
            self.prefetched_batch = self.prefetched_batch or next(batches)
            mark = self.timer.record_span("data", mark)
            for _ in range(self.num_missing):
                self._run_without_weight(self.prefetched_batch, step, micro_indices[0])
            self.timer.record_span("compute", mark)
        return super().run(batches, micro_indices, step, lr)

    def _run_without_weight(self, batch: InputsAndTargets, step: int, micro_index: int) -> None:
        """Add a gradient of zero, and leave running statistics as they are."""
        backward_pass, buffers = self.backward_pass, [*self.backward_pass.model.buffers()]
        weight, values = backward_pass.loss_weight, [buffer.clone() for buffer in buffers]
        backward_pass.loss_weight = torch.zeros_like(weight)
        backward_pass.run(*batch, step, micro_index)
        backward_pass.loss_weight = weight
        for buffer, value in zip(buffers, values, strict=True):
            buffer.copy_(value)


class PartSteps(ExactSteps):
    """Steps of all workers together, of which each has a part of the weights."""

    def __init__(self, step: PartGradientStep, sync: PartGradientSync, micro_indices: range, log: ExchangeLog) -> None:
        super().__init__(step, micro_indices)
        self.part_sync, self.log = sync, log

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the batches of the step after `step` others."""
        super().begin(loader, step)
        self.part_sync.drop_gradients()

    def run(self, step: int, num_steps: int, lr_at: Callable[[int], float]) -> Tensor:
        """Take the steps after `step` others, and return the losses by step and micro-batch of this process."""
        with self.log.count_steps():
            return super().run(step, num_steps, lr_at)

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with what its workers exchanged in a step."""
        sent_bytes, rounds = self.log.pop_traffic()
        return replace(lap, sent_bytes=sent_bytes // lap.steps, rounds=rounds / lap.steps)
