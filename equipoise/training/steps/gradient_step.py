"""Step of the optimizer along the gradient of several micro-batches."""

from collections.abc import Iterator

from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.optimizers.run_optimizer import RunOptimizer
from equipoise.training.dataloader import InputsAndTargets
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass


class GradientStep:
    """Step of the optimizer: backward passes, the exchange of their gradients, and the update of the weights."""

    def __init__(
        self,
        config: TrainConfig,
        backward_pass: BackwardPass,
        gradient_sync: GradientAllReduce,
        optimizer: RunOptimizer,
        timer: StepTimer,
    ) -> None:
        self.backward_pass, self.gradient_sync = backward_pass, gradient_sync
        self.optimizer, self.timer = optimizer, timer
        self.parameters = list(optimizer.named_parameters.values())
        self.clip_norm = config.clip_norm
        self.measures_noise = config.noise_scale_every > 0 and config.sync_method.kind == "step"
        self.prefetched_batch: InputsAndTargets | None = None  # the next micro-batch, if already loaded

    def run(self, batches: Iterator[InputsAndTargets], micro_indices: range, step: int, lr: float) -> list[Tensor]:
        """Take the step after `step` others, and return the mean loss of each of these micro-batches."""
        timer, sync, is_alone = self.timer, self.gradient_sync, self.gradient_sync.workers == 1
        is_probe_step = is_alone and self.measures_noise and self.backward_pass.is_probe_step(step)
        mark = timer.mark()
        for parameter in self.parameters:
            parameter.grad = None
        losses = []
        for micro_index in micro_indices:
            inputs, targets = self.prefetched_batch or next(batches)
            self.prefetched_batch = None
            mark = timer.record_span("data", mark)
            if is_probe_step and micro_index == micro_indices[0]:
                self.backward_pass.record_half_batch_norms(inputs, targets, step, timer.gradient_norms)
                mark = timer.record_span("probe", mark)
            if micro_index == micro_indices[-1]:
                sync.begin_last_micro_batch(timer.gradient_norms if self.measures_noise else None)
            losses.append(self.backward_pass.run(inputs, targets, step, micro_index))
            mark = timer.record_span("compute", mark)
            if sync.end_micro_batch(micro_index):
                mark = timer.mark()
        sync.launch_remaining()
        if not is_alone:
            mark = timer.record_span("exchange", mark)
            self.prefetched_batch = next(batches)  # while other workers finish
            mark = timer.record_span("data", mark)
            sync.wait_for_sums()
            mark = timer.record_span("exchange", mark)
        if sync.updates_weights:
            return losses
        if self.clip_norm:  # of the summed gradient, so that n workers clip as one does
            sync.clip_gradients(self.parameters, self.clip_norm)
        self.optimizer.step(lr)
        timer.record_span("compute", mark)
        return losses
