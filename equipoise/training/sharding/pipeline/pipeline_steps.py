"""Steps of the optimizer whose gradients a pipeline computes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.runs.record import Lap
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.sharding.pipeline.stage_gradients import StageGradientSum
from equipoise.training.sharding.pipeline.stage_runner import StageRunner
from equipoise.training.sharding.pipeline.stage_timeline import StageSpan, gather_spans, read_spans
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.steps.exact_steps import ExactSteps
from equipoise.training.steps.gradient_step import GradientStep

if TYPE_CHECKING:
    from equipoise.training.sharding.pipeline.pipeline_sharding import PipelineSharding

DRAWN_LAPS = 2  # in the first one memory is allocated and kernels load; a short run has no second


class PipelineStep(GradientStep):
    """Step of one stage: the passes of its schedule, sums of gradients, and the update of the stage's weights."""

    def __init__(
        self,
        sharding: "PipelineSharding",
        backward_pass: BackwardPass,
        gradient_sync: StageGradientSum,
        optimizer: RunOptimizer,
        timer: StepTimer,
    ) -> None:
        super().__init__(sharding.config, backward_pass, gradient_sync, optimizer, timer)
        self.runner = StageRunner(sharding, backward_pass, gradient_sync, timer)

    def run(self, batches: Iterator[InputsAndTargets], micro_indices: range, step: int, lr: float) -> list[Tensor]:
        """Take the step after `step` others, and return the mean loss of each of these micro-batches."""
        for parameter in self.parameters:
            parameter.grad = None
        losses = self.runner.run(batches, micro_indices, step)
        mark = self.timer.mark()
        self.gradient_sync.launch_remaining()
        self.gradient_sync.wait_for_sums()
        mark = self.timer.record_span("exchange", mark)
        if self.clip_norm:
            self.gradient_sync.clip_gradients(self.parameters, self.clip_norm)
        self.optimizer.step(lr)
        self.timer.record_span("compute", mark)
        self.runner.finish_sending()
        return losses


class PipelineSteps(ExactSteps):
    """Steps of one stage of a pipeline."""

    def __init__(self, step: PipelineStep, sync: StageGradientSum, sharding: "PipelineSharding", micros: range) -> None:
        super().__init__(step, micros)
        self.pipeline_step, self.stage_sync, self.sharding = step, sync, sharding
        self.laps_to_draw = DRAWN_LAPS
        """laps that are still to have the spans of their last step"""

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the batches of the step after `step` others; a stage that needs none reads none."""
        self.batches = loader.train_batches(self.micro_indices, step) if self.sharding.reads_batches else iter(())
        self.record_timeline()

    def record_timeline(self) -> None:
        """Keep the spans of each step until the next one, for `list_spans`."""
        self.pipeline_step.runner.timeline = []

    def list_spans(self) -> list[StageSpan]:
        """Return when this stage computed and waited in the last step."""
        return read_spans(self.pipeline_step.runner.timeline or [])

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with what the worker that sends most has sent in a step; all workers call it together."""
        runner, tied = self.pipeline_step.runner, self.stage_sync.count_tied_traffic()
        sent_bytes = 0
        for link in (runner.upstream and runner.upstream.gradients, runner.downstream and runner.downstream.values):
            if link:
                sent_bytes += link.sent_bytes // lap.steps
                link.sent_bytes = 0
        summed = self.sync.traffic
        # a value waits for the stages before, and that of the next micro-batch for it; so do their gradients
        hops = 2 * (len(self.micro_indices) + self.sharding.mesh.num_parts - 2)
        numbers = sent_bytes + summed.sent_bytes + tied.sent_bytes, hops + summed.rounds + tied.rounds
        most = torch.tensor(numbers, device=self.sharding.device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        lap = replace(lap, all_reduce=self.sync.algorithms, sent_bytes=int(most[0]), rounds=float(most[1]))
        if not self.laps_to_draw:
            return lap
        self.laps_to_draw -= 1
        sharding, micros = self.sharding, len(self.micro_indices)
        group = sharding.groups.values
        spans = gather_spans(self.list_spans(), sharding.mesh.num_parts, micros, sharding.device, group)
        return replace(lap, pipeline_spans=spans)


class IdleOptimizer(RunOptimizer):
    """Optimizer without parameters, which those of torch refuse to be."""

    def __init__(self) -> None:
        self.named_parameters, self.lr_scales, self.scaled_groups = {}, {}, []

    def step(self, lr: float) -> None:
        """Take no step, as there is nothing to move."""
