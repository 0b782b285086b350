"""Synchronous data parallelism as a generator of laps.

A global batch is a row of places, each a micro-batch. Which examples stand at a place,
how they are augmented and which units drop out there depends on the seed and the place
alone, so workers may share the places in any way: n workers, one worker that
accumulates, or four that become three in mid-run all take the same steps.

`torch.distributed` is asked for the process group; without one there is one worker.
"""

import math
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.rng import derive_seed
from equipoise.runs.record import Lap, RunStatus, examples_at_target
from equipoise.training.checkpoint import collect_training_state, load_training_state
from equipoise.training.dataloader import PARAMETER_DTYPES, BatchLoader
from equipoise.training.finetune import build_lr_scales, freeze_stages, initialize_from_pretrained, load_pretrained
from equipoise.training.gradient_norms import half_batch_norms
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.lr_schedules import lr_scale
from equipoise.training.optimizers import FusedOptimizer
from equipoise.training.sampler import rank_micro_batches
from equipoise.training.step_timer import StepTimer
from equipoise.workloads import Split, Workload, load_workload

MAX_LAP_STEPS = 100  # no lap is longer, so that a long way between evaluations shows signs of life


def laps(config: TrainConfig) -> Iterator[Lap]:
    """Train as `trial` asks, a lap at a time."""
    yield from Training(config).laps()


class Training:
    """A trial under way: model, optimizer and place in the stream of examples.

    `status` is None until the laps are over; `reason` says why a run failed.
    """

    def __init__(
        self, config: TrainConfig, workload: Workload | None = None, device: torch.device | None = None
    ) -> None:
        grouped = dist.is_available() and dist.is_initialized()
        self.rank, self.workers = (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)
        self.config = config
        self.device = device or torch.device("cpu")
        self.workload = workload or load_workload(config)
        self.micro_indices = rank_micro_batches(config.num_micro_batches, self.rank, self.workers)
        self.max_examples = self.workload.max_examples(config)
        self.eval_every = self.workload.eval_interval(config)
        self.warmup_examples = config.warmup * len(self.workload.train)
        self.target = self.workload.target if config.target is None else config.target
        self.step = 0
        self.finished_laps: list[Lap] = []
        self.status: RunStatus | None = None
        self.reason: str | None = None
        self.loader = BatchLoader(config, self.workload, self.device)
        self.reused_classes: list[str] = []  # classes whose rows of the classifier were taken over
        self.model = self._build_model()
        self.frozen_modules = freeze_stages(self.model, config.freeze_stages)
        self._set_train_mode()
        self.forward_model = torch.compile(self.model) if config.compile else self.model
        named = {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        self.trainable_parameters = list(named.values())
        self.optimizer = FusedOptimizer(config, named, build_lr_scales(self.model, config, len(self.workload.classes)))
        self.gradient_sync = GradientAllReduce(self.trainable_parameters, self.workers)
        # a micro-batch's part of the mean loss
        self.loss_weight = torch.tensor(
            1 / config.num_micro_batches, device=self.device, dtype=PARAMETER_DTYPES[config.precision]
        )
        self.timer = StepTimer(config, self.rank, self.workers, self.device)
        self.dropout_generator = get_dropout_generator(self.device)
        self.prefetched_batch: tuple[Tensor, Tensor] | None = None  # the next micro-batch, if it is there already

    @property
    def examples_seen(self) -> int:
        """Examples that the optimizer has stepped over."""
        return self.step * self.config.global_batch

    def laps(self) -> Iterator[Lap]:
        """Laps until the target is crossed, the cap is met or the loss is no longer finite."""
        batches, self.prefetched_batch = self.loader.train_batches(self.micro_indices, self.step), None
        if self.workers > 1:
            dist.barrier()  # the first exchange would count the wait for a worker that starts late
        while self.status is None:
            lap = self._run_lap(batches)
            if self.status is None:
                self.finished_laps.append(lap)
                self.status = self._find_end_status()
                yield lap

    def evaluate(self, split: Split) -> float:
        """The workload's metric on a split, computed by all workers together."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.model.eval()
        with torch.no_grad():
            for images, labels in self.loader.eval_batches(split, self.rank, self.workers):
                with self._autocast():
                    total += self.workload.metric(self.model(images), labels).sum()
        self._set_train_mode()
        return float(self._all_reduce_sum(total)) / len(split)

    def fits_in_memory(self) -> bool:
        """Whether a micro-batch fits the memory of every worker: tried without exchange, where one waits for all."""
        images, labels = next(self.loader.train_batches(self.micro_indices, self.step))
        try:
            self._run_backward(images, labels, self.micro_indices[0])
            lacking = 0
        except torch.OutOfMemoryError:
            lacking = 1
        for parameter in self.trainable_parameters:
            parameter.grad = None
        return not self.all_reduce_max(lacking)

    def all_reduce_max(self, value: int) -> int:
        """The largest wish of any worker: all of them get the same answer."""
        wishes = torch.tensor(value, device=self.device)
        if self.workers > 1:
            dist.all_reduce(wishes, dist.ReduceOp.MAX)
        return int(wishes)

    @property
    def examples_to_target(self) -> float | None:
        """Examples seen when the metric crossed the target, interpolated."""
        return examples_at_target(self.finished_laps, self.target)

    def state_dict(self) -> dict[str, Tensor]:
        """All that the next step depends on, beside the laps done.

        The order of examples, augmentation, dropout and the learning rate are functions of
        the seed and the step, so no generator or sampler has a state to keep.
        """
        return collect_training_state(self.model, self.optimizer)

    def load_state_dict(self, tensors: dict[str, Tensor], finished_laps: list[Lap]) -> None:
        """Go on from a `state` and the laps that led to it."""
        load_training_state(self.model, self.optimizer, tensors)
        self.finished_laps = list(finished_laps)
        self.step = finished_laps[-1].step if finished_laps else 0
        self.status = self._find_end_status()

    def _build_model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.config.seed)
            model = self.workload.model()
        if before := load_pretrained(self.config):
            self.reused_classes = initialize_from_pretrained(
                model, before, list(self.workload.classes), self.config.reuse_head
            )
        layout = torch.channels_last if self.config.channels_last else torch.preserve_format
        model = model.to(self.device, PARAMETER_DTYPES[self.config.precision], memory_format=layout)  # type: ignore[call-overload]
        if self.workers > 1:  # processors of different make may round the same draw differently
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)
        return model  # type: ignore[no-any-return]

    def _set_train_mode(self) -> None:
        """All but what is frozen in training mode."""
        self.model.train()
        for module in self.frozen_modules:
            module.eval()

    def _run_lap(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Lap:
        start = self.timer.mark()
        steps = self._steps_in_lap()
        with flush_denormals():
            losses = torch.stack([loss for _ in range(steps) for loss in self._run_step(batches)])
        self.timer.record_span("lap", start)
        lap, means = self.timer.finish_lap(
            losses.view(steps, -1).sum(1) * self.loss_weight, self.step, self._lr_at(self.step), self._all_reduce_sum
        )
        self._check_losses(means)
        if self.workers > 1:
            self._average_buffers()
        due = (
            self.examples_seen // self.eval_every > (self.examples_seen - lap.examples) // self.eval_every
            or self.examples_seen >= self.max_examples
        )
        if due and self.status is None:
            lap = replace(lap, metric=self.evaluate(self.workload.validation))
            if not math.isfinite(lap.metric or 0.0):
                self._fail(f"the metric was {lap.metric} on the validation split at step {self.step}")
        return lap

    def _steps_in_lap(self) -> int:
        """Steps until the next evaluation, the cap or the longest lap."""
        until = min((self.examples_seen // self.eval_every + 1) * self.eval_every, self.max_examples)
        return min(MAX_LAP_STEPS, math.ceil((until - self.examples_seen) / self.config.global_batch))

    def _run_step(self, batches: Iterator[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """One optimizer step; the mean losses of this worker's micro-batches."""
        meter, probing = self.timer, self._is_probe_step()
        mark = meter.mark()
        for parameter in self.trainable_parameters:
            parameter.grad = None
        losses = []
        for place in self.micro_indices:
            images, labels = self.prefetched_batch or next(batches)
            self.prefetched_batch = None
            mark = meter.record_span("data", mark)
            if probing and place == self.micro_indices[0]:
                self._record_half_batch_norms(images, labels)
                mark = meter.record_span("probe", mark)
            if place == self.micro_indices[-1]:
                self.gradient_sync.begin_last_micro_batch(
                    meter.gradient_norms if self.config.noise_scale_every else None
                )
            losses.append(self._run_backward(images, labels, place))
            mark = meter.record_span("compute", mark)
        self.gradient_sync.launch_remaining()
        if self.workers > 1:
            mark = meter.record_span("exchange", mark)
            self.prefetched_batch = next(batches)  # while others are waited for
            mark = meter.record_span("data", mark)
            self.gradient_sync.wait_for_sums()
            mark = meter.record_span("exchange", mark)
        self.step += 1
        self.optimizer.step(self._lr_at(self.step))
        meter.record_span("compute", mark)
        return losses

    def _run_backward(self, images: Tensor, labels: Tensor, micro_index: int) -> Tensor:
        self.dropout_generator.manual_seed(derive_seed(self.config.seed, self.step, micro_index))
        with self._autocast():
            loss = self.workload.loss(self.forward_model(images), labels)
        # scaled here: `backward` checks a gradient given to it at length, the first time by half a second of imports
        (loss if self.config.num_micro_batches == 1 else loss * self.loss_weight.to(loss.dtype)).backward()
        return loss.detach()

    def _is_probe_step(self) -> bool:
        """Whether this step's gradient is looked at by halves: with several workers their exchange shows it."""
        trial = self.config
        return (
            self.workers == 1
            and trial.batch_size > 1
            and trial.noise_scale_every > 0
            and self.step % trial.noise_scale_every == 0
        )

    def _record_half_batch_norms(self, images: Tensor, labels: Tensor) -> None:
        self.dropout_generator.manual_seed(derive_seed(self.config.seed, self.step, self.config.num_micro_batches))
        with self._autocast():
            local, total = half_batch_norms(self.model, self.workload.loss, images, labels)
        self.timer.gradient_norms.add_draw(local, total)

    def _lr_at(self, step: int) -> float:
        """The learning rate of the step that ends as number `step`."""
        ends = step * self.config.global_batch
        return self.config.lr * lr_scale(self.config.schedule, ends, self.warmup_examples, self.max_examples)

    def _autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.config.precision == "bf16" else nullcontext()

    def _check_losses(self, losses: Tensor) -> None:
        wrong = torch.nonzero(~torch.isfinite(losses))
        if len(wrong):
            first = int(wrong[0])
            step = self.step - len(losses) + first + 1
            self._fail(f"the loss was {float(losses[first])} at step {step}")

    def _average_buffers(self) -> None:
        """Running statistics become the mean of all workers', so that one checkpoint holds the state of all."""
        for buffer in self.model.buffers():
            if buffer.is_floating_point():
                buffer.copy_(self._all_reduce_sum(buffer.clone()) / self.workers)

    def _all_reduce_sum(self, tensor: Tensor) -> Tensor:
        if self.workers > 1:
            dist.all_reduce(tensor)
        return tensor

    def _fail(self, reason: str) -> None:
        self.status, self.reason = "failed", reason

    def _find_end_status(self) -> RunStatus | None:
        if self.examples_to_target is not None:
            return "reached_target"
        return "max_examples" if self.examples_seen >= self.max_examples else None


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Numbers near the smallest of their type are zero, in this thread.

    The momentum of a unit that no longer learns decays to such numbers and stays there, and a CPU
    computes with them in microcode: 3 % of LeNet's step.
    """
    before = sys.float_info.min / 2 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def get_dropout_generator(device: torch.device) -> torch.Generator:
    """The generator that dropout draws from."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator
