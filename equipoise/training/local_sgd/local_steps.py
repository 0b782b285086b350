"""Steps that workers take on their own, with an average of what they learned at intervals: local SGD and DiLoCo.

Local SGD: Stich, 2018, arXiv:1805.09767. Weights, moments of the optimizer and running statistics of batch
normalisation are averaged, so that one checkpoint holds the state of all, and any number of processes can resume it.
A process hosts one or more of the workers that the options name. Several take turns, a whole interval each, from the
same state; their micro-batches, augmentation and dropout are those that processes of their own would have.
A worker clips its own gradient (`--clip-norm`), because no other gradient is known to it.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.gradient_sync import SumTraffic
from equipoise.training.local_sgd.outer_step import OuterStep
from equipoise.training.local_sgd.state_sum import StateSum
from equipoise.training.local_sgd.worker_state import WorkerState
from equipoise.training.sampler import rank_micro_batches
from equipoise.training.steps.gradient_step import GradientStep


class LocalSteps:
    """Steps of the workers that this process hosts, and their averages over all processes."""

    def __init__(
        self, config: TrainConfig, gradient_step: GradientStep, state: WorkerState, hosted: range, processes: int
    ) -> None:
        self.config, self.gradient_step, self.state, self.hosted = config, gradient_step, state, hosted
        averaged = state.list_averaged_later(config)
        self.state_sum = StateSum(averaged, processes, config.all_reduce) if processes > 1 else None
        takes_turns = len(hosted) > 1
        self.hosted_sums = [torch.zeros_like(tensor) for tensor in averaged] if takes_turns else []
        self.outer_step = (
            OuterStep(gradient_step.optimizer, config.outer_lr, config.outer_momentum)
            if config.sync_method.kind == "diloco"
            else None
        )
        self.batches: list[Iterator[InputsAndTargets]] = []

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the batches of the step after `step` others, from the weights that the model has now."""
        self.batches = [loader.train_batches(self._micro_indices(worker), step) for worker in self.hosted]
        if self.outer_step:
            self.outer_step.begin()

    def run(self, step: int, num_steps: int, lr_at: Callable[[int], float]) -> Tensor:
        """Take the steps after `step` others and average; return the losses by step and micro-batch of this process."""
        saved = self.state.save() if self.hosted_sums else None
        losses = []
        for worker, batches in zip(self.hosted, self.batches, strict=True):
            if saved and worker > self.hosted.start:
                self.state.restore(saved)
            steps = [
                self.gradient_step.run(batches, self._micro_indices(worker), index, lr_at(index + 1))
                for index in range(step, step + num_steps)
            ]
            losses.append(torch.stack([torch.stack(step_losses) for step_losses in steps]))
            if saved:
                self._add_to_sums(is_first=worker == self.hosted.start)
        self._average()
        return torch.cat(losses, 1)

    @property
    def traffic(self) -> SumTraffic:
        """What a worker process sends for one average."""
        return self.state_sum.all_reduce.traffic if self.state_sum else SumTraffic()

    def _micro_indices(self, worker: int) -> range:
        size = self.config.grad_accumulation
        return range(worker * size, (worker + 1) * size)

    def _add_to_sums(self, is_first: bool) -> None:
        tensors = self.state.list_averaged()
        (torch._foreach_copy_ if is_first else torch._foreach_add_)(self.hosted_sums, tensors)

    @torch.no_grad()
    def _average(self) -> None:
        """Give the model and the optimizer the average over all workers, or what the outer step makes of it."""
        timer = self.gradient_step.timer
        mark = timer.mark()
        tensors = self.state.list_averaged()
        averages = self.hosted_sums or tensors
        if self.state_sum:
            averages = self.state_sum.run(averages)
            mark = timer.record_span("exchange", mark)
        if averages is not tensors:
            torch._foreach_div_(averages, self.config.workers)
        if self.outer_step:
            self.outer_step.apply(averages[: len(self.state.weights)])
        if averages is not tensors:
            torch._foreach_copy_(tensors, averages)
        timer.record_span("compute", mark)


def find_hosted_workers(config: TrainConfig, rank: int, processes: int) -> range:
    """Return the workers of a configuration that a process hosts; refuse more processes than workers."""
    if processes > config.workers:
        raise EquipoiseError(
            "option-conflict",
            f"cannot take steps of {config.workers} workers with --sync {config.sync} in {processes} processes: a worker"
            " takes all micro-batches of its own steps",
            f"start at most {config.workers} processes, or set --workers {processes}",
        )
    return rank_micro_batches(config.workers, rank, processes)
