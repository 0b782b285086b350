"""Passes of the micro-batches of a step through one stage of a pipeline."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from equipoise.rng import derive_seed
from equipoise.runs.pipeline_span import SpanKind
from equipoise.training.dataloader import InputsAndTargets
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.sharding.pipeline.pipeline_schedules import StagePass, list_stage_passes
from equipoise.training.sharding.pipeline.stage_timeline import MarkedSpan
from equipoise.training.step_timer import StepTimer, TimeMark
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.workloads.batch import Batch

if TYPE_CHECKING:
    from equipoise.training.sharding.pipeline.pipeline_sharding import PipelineSharding


class StageValues(NamedTuple):
    """What a forward pass leaves for the backward pass of its micro-batch."""

    received: Tensor | None
    result: Tensor
    """value for the next stage, or the weighted loss"""


class StageRunner:
    """Runner of the passes of one stage."""

    def __init__(
        self, sharding: "PipelineSharding", backward_pass: BackwardPass, sync: GradientAllReduce, timer: StepTimer
    ) -> None:
        self.sharding, self.backward_pass, self.sync, self.timer = sharding, backward_pass, sync, timer
        self.upstream, self.downstream = sharding.upstream, sharding.downstream
        self.in_flight: dict[int, StageValues] = {}
        """forward passes whose backward passes are to come, by the position of their micro-batch"""
        self.losses: list[Tensor] = []
        self.timeline: list[MarkedSpan] | None = None
        """spans of the last step, if they are recorded"""

    def run(self, batches: Iterator[InputsAndTargets], micro_indices: range, step: int) -> list[Tensor]:
        """Add the gradients of these micro-batches; return their losses, which only the last stage knows: zeros."""
        mesh, count = self.sharding.mesh, len(micro_indices)
        passes = list_stage_passes(self.sharding.config.pipeline_schedule, mesh.part, mesh.num_parts, count)
        arrived = self._list_arrived_gradients(count)
        last_backward = StagePass("backward", count - 1)
        self.losses = []
        if self.timeline is not None:
            self.timeline = []
        if self.upstream:
            self.upstream.expect_value()
        for stage_pass in passes:
            kind, micro = stage_pass
            if kind == "forward":
                inputs, targets = self._load_batch(batches)
                self._run_forward(inputs, targets, step, micro_indices[micro], micro, is_last=micro == count - 1)
                if self.upstream:
                    self.upstream.gradients.finish(arrived[micro])
            else:
                if stage_pass == last_backward:
                    self.sync.begin_last_micro_batch(None)
                self._run_backward(micro)
        return self.losses

    def finish_sending(self) -> None:
        """Wait until the neighbours have all that they were sent."""
        mark = self.timer.mark()
        if self.downstream:
            self.downstream.values.finish()
        if self.upstream:
            self.upstream.gradients.finish()
        self.timer.record_span("exchange", mark)

    def _list_arrived_gradients(self, count: int) -> list[int]:
        """Return the last gradient that the stage before has taken when it sends the value of each micro-batch."""
        mesh, arrived, last = self.sharding.mesh, [], -1
        if self.upstream:
            schedule = self.sharding.config.pipeline_schedule
            for kind, micro in list_stage_passes(schedule, mesh.part - 1, mesh.num_parts, count):
                if kind == "backward":
                    last = micro
                else:
                    arrived.append(last)
        return arrived

    def _load_batch(self, batches: Iterator[InputsAndTargets]) -> tuple[Batch, Batch]:
        if not self.sharding.reads_batches:
            return None, None
        mark = self.timer.mark()
        batch = next(batches)
        self.timer.record_span("data", mark)
        return batch

    def _run_forward(
        self, inputs: Batch, targets: Batch, step: int, micro_index: int, micro: int, *, is_last: bool
    ) -> None:
        received, state = self._receive_value(micro, is_last)
        mark = self.timer.mark()
        generator = self.backward_pass.dropout_generator
        if state is None:
            generator.manual_seed(derive_seed(self.backward_pass.config.seed, step, micro_index))
        else:
            generator.set_state(state)
        result = self._compute(received, inputs, targets)
        if self.downstream:
            self.downstream.send_value(micro, result, generator.get_state())
            self.losses.append(self.backward_pass.loss_weight.new_zeros(()))
        self.in_flight[micro] = StageValues(received, result)
        self._record("forward", mark, micro)
        self._expect_gradient()

    def _receive_value(self, micro: int, is_last: bool) -> tuple[Tensor | None, Tensor | None]:
        if self.upstream is None:
            return None, None
        mark = self.timer.mark()
        received = self.upstream.receive_value()
        if not is_last:
            self.upstream.expect_value()
        self._record("wait", mark, micro)
        return received

    def _compute(self, received: Tensor | None, inputs: Batch, targets: Batch) -> Tensor:
        """Return the value for the next stage, or the weighted loss."""
        backward_pass = self.backward_pass
        with backward_pass.autocast():
            outputs: Any = self.sharding.call_stage(received, inputs)
            if self.downstream:
                return outputs  # type: ignore[no-any-return]  # the single value at a cut
            loss: Tensor = backward_pass.workload.loss(outputs, targets)
        self.losses.append(loss.detach())
        return loss if backward_pass.num_parts == 1 else loss * backward_pass.loss_weight.to(loss.dtype)

    def _run_backward(self, micro: int) -> None:
        received, result = self.in_flight[micro]
        gradient = self._receive_gradient(micro)
        del self.in_flight[micro]
        self._expect_gradient()
        mark = self.timer.mark()
        if result.requires_grad:
            torch.autograd.backward(result, gradient)
        if self.upstream and received is not None and received.requires_grad:
            self.upstream.send_gradient(micro, received)
        self._record("backward", mark, micro)

    def _expect_gradient(self) -> None:
        """Let the next gradient come, once the shape of its value is known."""
        links = self.downstream
        if links and links.boundary.needs_gradient and not links.gradients.pending and self.in_flight:
            links.expect_gradient(self.in_flight[min(self.in_flight)].result)

    def _receive_gradient(self, micro: int) -> Tensor | None:
        if self.downstream is None or not self.downstream.boundary.needs_gradient:
            return None
        mark = self.timer.mark()
        gradient = self.downstream.gradients.receive()
        self.downstream.values.finish(micro)  # whose gradient is there: it has arrived
        self._record("wait", mark, micro)
        return gradient

    def _record(self, kind: SpanKind, start: TimeMark, micro: int) -> None:
        end = self.timer.record_span("exchange" if kind == "wait" else "compute", start)
        if self.timeline is not None:
            self.timeline.append(MarkedSpan(start, end, kind, micro))
