"""Hooks on a model and its optimizer, by which a clock of steps and a probe of norms follow a loop."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from equipoise.observation.backward_watch import BackwardWatch, current_backward_id
from equipoise.observation.norm_probe import NormProbe
from equipoise.observation.step_clock import StepClock


class LoopHooks:
    """Hooks on a model and its optimizer; `on_step` gets the number of micro-batches behind each optimizer step."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        clock: StepClock,
        probe: NormProbe,
        on_step: Callable[[int], None],
        follow_forward: bool,
    ) -> None:
        self.clock, self.probe, self.on_step = clock, probe, on_step
        self.watch = BackwardWatch(
            probe.begin_backward, clock.end_computing if clock.has_exchange else None, self._end_backward
        )
        self.is_training_pass = False
        self.unseen_steps = 0
        """steps of the optimizer before which the model was not called"""
        self.handles = [optimizer.register_step_post_hook(self._end_step)]
        if follow_forward:
            self.handles += [
                model.register_forward_pre_hook(self._begin_forward),
                model.register_forward_hook(self._end_forward),
            ]

    def begin_forward(self) -> None:
        """Note that a forward pass in training mode starts."""
        self.probe.begin_forward()
        self.clock.begin_forward()

    def remove(self) -> None:
        """Remove all hooks from the model and the optimizer."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.probe.stop_measuring()

    def _begin_forward(self, model: nn.Module, _: Any) -> None:
        self.is_training_pass = is_training_pass(model)
        if self.is_training_pass:
            self.begin_forward()
        elif current_backward_id() is None:
            self.clock.pause()

    def _end_forward(self, model: nn.Module, _: Any, output: Any) -> None:
        if self.is_training_pass:
            self.is_training_pass = False
            self.watch.watch_output(output)

    def _end_backward(self) -> None:
        self.clock.end_backward()
        if self.probe.handles:
            self.probe.end_backward()
            self.clock.skip_to_now()  # a measurement is not part of the step

    def _end_step(self, *_: Any) -> None:
        if micro_batches := self.clock.end_step():
            self.probe.end_step(micro_batches)
            self.on_step(micro_batches)
        else:
            self.unseen_steps += 1


def is_training_pass(model: nn.Module) -> bool:
    """Return whether a forward pass is in training mode and with gradients, and not part of a backward pass."""
    return model.training and torch.is_grad_enabled() and current_backward_id() is None
