"""Hooks on a model and its optimizer, by which a clock of steps and a probe of norms follow a loop."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from equipoise.observation.backward_watch import BackwardWatch, current_backward_id, queue_backward_callback
from equipoise.observation.last_gradient import LastGradientWatch
from equipoise.observation.loop_setup import find_inner_module
from equipoise.observation.norm_probe import NormProbe
from equipoise.observation.step_clock import StepClock

if TYPE_CHECKING:  # which observing without a profile does not load
    from equipoise.observation.profiling.loop_profiler import LoopProfiler


class ModelHook:
    """Hook on a model, in whose place a copy of the model or a file of it has one that does nothing.

    Loops copy models to average their weights, and save whole models; a copy is not the model that is observed.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> None:
        self.function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")  # does nothing, and a file of the model needs none of our modules


class LoopHooks:
    """Hooks on a model and its optimizer.

    `on_step` gets the number of micro-batches behind an optimizer step, and returns how many steps from there it is to
    be called at the latest. It is not called in between where steps are plain: neither timed by part nor measured.

    A backward pass is followed by hooks on the output of the model, which are set anew for each pass, as long as the
    parameter whose gradient comes last is not known, and where norms are measured. In other steps that are timed by
    part a hook on that parameter does: it costs less. In all other steps, which are the most, no backward pass is
    followed. A hook that is not needed is taken away: even one that does nothing costs microseconds.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        clock: StepClock,
        probe: NormProbe,
        on_step: Callable[[int], int],
        follow_forward: bool,
    ) -> None:
        self.model, self.clock, self.probe, self.on_step = model, clock, probe, on_step
        self.watch = BackwardWatch(
            self._begin_backward, clock.end_unseen_computing if clock.has_exchange else None, self._end_backward
        )
        self.gradients = LastGradientWatch(
            probe.parameters, clock.end_computing, self._handle_last_gradient, not finds_unused_parameters(model)
        )
        self.is_training_pass = False
        self.filled_parameter: Tensor | None = None
        """parameter that had a gradient at the end of the last backward pass that was followed"""
        self.unseen_steps = 0
        """steps of the optimizer before which the model was not called"""
        self.handles = [optimizer.register_step_post_hook(self._end_step)]
        self.follow_forward = follow_forward
        if follow_forward:
            self.handles.append(model.register_forward_pre_hook(ModelHook(self._begin_forward)))
        self.output_handle: RemovableHandle | None = None
        self.is_due = self.watches_output = False
        """whether norms are to be measured in the step, and whether hooks on outputs follow its backward passes"""
        self.plain_steps = 0
        """steps from this one of which nothing but start and end is noted"""
        self.profiler: LoopProfiler | None = None
        """profiler that is told what the loop does; set by `on_step`"""
        self._prepare_step(1)

    def begin_forward(self) -> None:
        """Note that a forward pass in training mode starts."""
        self.clock.begin_forward()
        if self.is_due:
            self.is_due = False
            self.probe.start_measuring()
            self.clock.skip_to_now()
        if self.profiler:
            self.profiler.begin_forward()

    def watch_output(self, output: Any) -> None:
        """Follow the backward pass through an output of the model, or a loss, if the step needs it."""
        if self.watches_output:
            self.watch.watch_output(output)
        if self.profiler:
            self.profiler.watch_output(output)

    def pause(self) -> None:
        """Note that the loop does something else than training until the next forward pass."""
        self.clock.pause()
        if self.profiler:
            self.profiler.pause()

    def remove(self) -> None:
        """Remove all hooks from the model and the optimizer."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.watches_output = False
        self._follow_outputs(False)
        self.gradients.remove()
        self.probe.stop_measuring()
        if self.profiler:
            self.profiler.close()

    def _begin_forward(self, model: nn.Module, _: Any) -> None:
        clock = self.clock
        # the usual case on its own, as in _end_step: between the steps of a model each call costs a microsecond
        if self.plain_steps and clock.state == "waiting" and not clock.forwards and is_training_pass(model):
            now = clock.timer.mark()
            clock.timer.spans.append(("data", clock.last_mark, now))
            clock.last_mark, clock.state, clock.forwards = now, "computing", 1
            return
        self.is_training_pass = is_training_pass(model)
        if self.is_training_pass:
            self.begin_forward()
        elif current_backward_id() is None:
            self.pause()

    def _end_forward(self, model: nn.Module, _: Any, output: Any) -> None:
        if self.is_training_pass:
            self.is_training_pass = False
            self.watch_output(output)

    def _begin_backward(self) -> None:
        """Note that a backward pass starts; the passes before it do not count if their gradients were thrown away.

        GradScaler leaves out steps whose gradients are not finite, which the first ones of a run often are.
        """
        if self.filled_parameter is not None and self.filled_parameter.grad is None:
            self.clock.backwards = 0
            self.probe.forget_passes()
        self.probe.begin_backward()

    def _handle_last_gradient(self, _: Any) -> None:
        """End computing where an exchange follows until the pass ends; without one this is the end of the pass."""
        if not self.clock.has_exchange:
            self.clock.end_backward()
            return
        self.clock.end_computing()
        if not self.probe.handles:
            queue_backward_callback(self._queue_end)

    def _queue_end(self) -> None:
        queue_backward_callback(self._end_backward)  # behind the callback in which DDP waits for the exchange

    def _end_backward(self) -> None:
        self.clock.end_backward()
        self.filled_parameter = next((p for p in self.probe.parameters if p.grad is not None), None)
        if not self.gradients.is_known:
            self.gradients.end_pass()
        if self.probe.handles:
            self.probe.end_backward()
            self.clock.skip_to_now()  # a measurement is not part of the step

    def _end_step(self, *_: Any) -> None:
        clock = self.clock
        if self.plain_steps and clock.forwards and clock.pause_mark is None and clock.state == "computing":
            now = clock.timer.mark()
            clock.timer.spans.append(("untimed", clock.last_mark, now))
            clock.last_mark, clock.state, clock.forwards = now, "waiting", 0
            clock.num_finished_spans = len(clock.timer.spans)
            clock.steps += 1
            self.plain_steps -= 1
            if not self.plain_steps:
                clock.choose_spans()
                self._prepare_step(self.on_step(1))
            return
        if clock.is_timed and self.gradients.is_known and clock.forwards and not clock.backwards:
            self.gradients.forget_order()
        if micro_batches := clock.end_step():
            if self.probe.handles:
                self.probe.end_step(micro_batches)
                clock.skip_to_now()
            if self.profiler:
                self.profiler.end_step()
                clock.skip_to_now()  # a trace takes a second to be written
            self._prepare_step(self.on_step(micro_batches))
        else:
            self.unseen_steps += 1

    def _prepare_step(self, steps_left: int) -> None:
        """Set the hooks that the next step needs, remove those that it does not need, and count the plain steps."""
        is_timed, gradients, step = self.clock.is_timed, self.gradients, self.clock.steps
        until_due = math.inf if self.profiler else self.probe.count_steps_until_due(step)
        self.is_due = until_due == 0
        is_plain = not (is_timed or self.profiler)
        untimed_steps = self.clock.sampling.count_untimed_steps(step) if is_plain else 0
        self.plain_steps = int(min(until_due, steps_left - 1, untimed_steps))
        if is_timed:
            gradients.watch()
        elif gradients.handles:
            gradients.remove()
        self.watches_output = self.is_due or (is_timed and not gradients.is_known)
        self._follow_outputs(self.watches_output or self.profiler is not None)

    def _follow_outputs(self, is_followed: bool) -> None:
        """Set or remove the hook on the outputs of the model."""
        if is_followed == (self.output_handle is not None) or not self.follow_forward:
            return
        if self.output_handle:
            self.output_handle.remove()
            self.output_handle = None
        else:
            self.output_handle = self.model.register_forward_hook(ModelHook(self._end_forward))


def finds_unused_parameters(model: nn.Module) -> bool:
    """Return whether a DistributedDataParallel expects backward passes that do not reach all parameters."""
    if isinstance(model, DistributedDataParallel):
        return bool(model.find_unused_parameters)
    inner = find_inner_module(model)
    return inner is not None and finds_unused_parameters(inner)


def is_training_pass(model: nn.Module) -> bool:
    """Return whether a forward pass is in training mode and with gradients, and not part of a backward pass."""
    return model.training and torch.is_grad_enabled() and current_backward_id() is None
