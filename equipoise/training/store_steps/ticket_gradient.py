"""Gradient of a ticket: the micro-batches that a worker computes between two exchanges with the servers."""

import torch
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.dataloader import BatchLoader
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass


class TicketGradient:
    """Mean gradient over the micro-batches of a ticket, at the weights that the model has at the moment.

    Ticket t stands for the micro-batches of worker t % n in the global batch t // n, n being the configured workers.
    A worker clips its own gradient (`--clip-norm`), as no other is known to it; without staleness, where a step has one
    update, its gradient is clipped instead.
    """

    def __init__(
        self, config: TrainConfig, backward_pass: BackwardPass, optimizer: RunOptimizer, timer: StepTimer
    ) -> None:
        self.config, self.backward_pass, self.timer = config, backward_pass, timer
        self.parameters = list(optimizer.named_parameters.values())
        self.clip_norm = config.clip_norm if config.sync_method.staleness else 0.0
        self.micros = config.grad_accumulation
        self.losses = torch.zeros(0)  # of the lap, by step and micro-batch
        self.first_step = 0
        self.loader: BatchLoader | None = None

    def begin(self, loader: BatchLoader) -> None:
        """Read examples by this loader."""
        self.loader = loader

    def begin_lap(self, step: int, num_steps: int) -> None:
        """Collect the losses of the steps after `step` others."""
        self.first_step = step
        weight = self.backward_pass.loss_weight
        self.losses = torch.zeros(num_steps, self.config.num_micro_batches, device=weight.device, dtype=weight.dtype)

    def compute(self, ticket: int) -> list[Tensor]:
        """Return the gradient of each parameter, which the caller may overwrite; keep the losses."""
        assert self.loader is not None  # noqa: S101 - `begin` comes first
        step, worker = divmod(ticket, self.config.workers)
        for parameter in self.parameters:
            parameter.grad = None
        mark = self.timer.mark()
        for micro_index in range(worker * self.micros, (worker + 1) * self.micros):
            inputs, targets = self.loader.load_micro_batch(step, micro_index)
            mark = self.timer.record_span("data", mark)
            loss = self.backward_pass.run(inputs, targets, step, micro_index)
            self.losses[step - self.first_step, micro_index] = loss
            mark = self.timer.record_span("compute", mark)
        if self.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        self.timer.record_span("compute", mark)
        return gradients
