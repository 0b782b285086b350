"""Steps of workers that compute parts of the same layers: gradients are summed over replicas alone."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import nn

from equipoise.runs.record import Lap
from equipoise.training.dataloader import BatchLoader
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.sharding.tensor.part_exchange import PartExchange
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.training.steps.gradient_step import GradientStep


class ReplicaSync(GradientAllReduce):
    """Sum of the gradients of a part over all replicas of the model.

    The gradient of a weight that is whole on each worker of a replica needs no sum over them: all have computed it.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        divided: Sequence[nn.Parameter],
        num_replicas: int,
        group: dist.ProcessGroup,
        exchange: PartExchange,
    ) -> None:
        super().__init__(parameters, num_replicas, group=group)
        self.divided_ids, self.exchange = set(map(id, divided)), exchange

    def clip_gradients(self, parameters: Sequence[nn.Parameter], max_norm: float) -> None:
        """Scale the gradient down to a norm where that of the whole model is larger."""
        with_gradient = [parameter for parameter in parameters if parameter.grad is not None]
        whole, divided = (
            [p.grad for p in with_gradient if p.grad is not None and (id(p) in self.divided_ids) == is_divided]
            for is_divided in (False, True)
        )
        square = nn.utils.get_total_norm(divided).square() if divided else None
        square = self.exchange.sum_in_step(square) if square is not None else torch.zeros(())
        norm = (nn.utils.get_total_norm(whole).square() + square).sqrt() if whole else square.sqrt()
        nn.utils.clip_grads_with_norm_(with_gradient, max_norm, norm)


class TensorSteps(ExactSteps):
    """Steps with an exchange of activations in each, which laps count with that of gradients."""

    def __init__(
        self, gradient_step: GradientStep, micro_indices: range, exchange: PartExchange, timer: StepTimer
    ) -> None:
        super().__init__(gradient_step, micro_indices)
        self.exchange, self.timer = exchange, timer

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the batches of the step after `step` others; what was exchanged before is no step's."""
        super().begin(loader, step)
        self.exchange.timer = self.timer
        self.exchange.pop_traffic()

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with what the worker that sends most exchanged in a step, in the mean over the lap."""
        gradients, activations = self.sync.traffic, self.exchange.pop_traffic()
        counts = torch.tensor(
            [
                gradients.sent_bytes + activations.sent_bytes / lap.steps,
                gradients.rounds + activations.rounds / lap.steps,
            ],
            dtype=torch.float64,
            device=self.timer.device,
        )
        dist.all_reduce(counts, dist.ReduceOp.MAX)
        sent_bytes, rounds = counts.tolist()
        return replace(lap, all_reduce=self.sync.algorithms, sent_bytes=round(sent_bytes), rounds=rounds)
