"""Synchronous data-parallel training as a generator of laps.

A global batch is a sequence of micro-batches. The examples of a micro-batch, their augmentation
and the units that drop out depend only on the seed, the step and the index of the micro-batch, so
workers may share the micro-batches in any way: n workers, one worker that accumulates gradients,
or four that become three in mid-run all take the same steps.

Workers are the ranks of `torch.distributed`'s process group; without one there is a single worker.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.optimizers.lr_schedules import lr_scale
from equipoise.runs.record import Lap, RunStatus, examples_at_target
from equipoise.runs.run_end import find_best_lap, find_run_end
from equipoise.training.checkpoint import collect_training_state, load_training_state, move_to_cpu
from equipoise.training.evaluation import Evaluator
from equipoise.training.finetune import build_lr_scales, freeze_stages
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.initialization.lora import merge_adapters
from equipoise.training.initialization.shared_model import build_shared_model
from equipoise.training.memory.out_of_memory import runs_out_of_memory
from equipoise.training.memory.peak_memory import PeakMemory
from equipoise.training.recipes.build_recipes import adapt_loss, build_batch_grower, build_kept_weights, build_loader
from equipoise.training.sampler import list_own_micro_batches
from equipoise.training.sharding.shard_model import shard_model
from equipoise.training.sharding.sharded_model import ShardedModel
from equipoise.training.sharding.state_parts import StatePart
from equipoise.training.sharding.worker_mesh import WorkerMesh, build_worker_mesh
from equipoise.training.step_timer import StepTimer
from equipoise.training.steps.backward_pass import BackwardPass
from equipoise.training.torch_state import collect_weights, flush_denormals
from equipoise.workloads import Split, Workload, load_workload

MAX_LAP_STEPS = 100  # upper bound, so that progress shows even when evaluations are far apart


def laps(config: TrainConfig) -> Iterator[Lap]:
    """Train with the given options, in this process or in all of its process group, and yield each lap as it ends."""
    yield from Training(config).laps()


class Training:
    """Training run in progress: model, optimizer and position in the sequence of examples.

    `status` is None until the last lap has ended; `reason` says why a run failed or stopped early.
    """

    def __init__(
        self, config: TrainConfig, workload: Workload | None = None, device: torch.device | None = None
    ) -> None:
        has_group = dist.is_available() and dist.is_initialized()
        self.rank, self.workers = (dist.get_rank(), dist.get_world_size()) if has_group else (0, 1)
        self.device = device or torch.device("cpu")
        self.workload = workload or load_workload(config)
        self.config = config = config.with_defaults(self.workload.defaults)
        self.mesh = build_worker_mesh(config.sharding_method, self.rank, self.workers)
        # before anything takes long
        self.micro_indices = list_own_micro_batches(config, self.mesh.data_rank, self.mesh.data_workers)
        self.max_examples = self.workload.max_examples(config)
        self.eval_every = self.workload.eval_interval(config)
        self.warmup_examples = self.workload.warmup_examples(config)
        self.target = self.workload.run_target(config)
        self.step = 0
        self.finished_laps: list[Lap] = []
        self.status: RunStatus | None = None
        self.reason: str | None = None
        self.loader = build_loader(config, self.workload, self.device)
        self.workload = adapt_loss(config, self.workload)
        self.batch_grower = build_batch_grower(config, self.workload)
        initial = build_shared_model(config, self.workload, self.device, self.workers)
        self.reused_classes = list(initial.reused_classes)  # whose rows of the classifier are pretrained
        self.frozen_modules = freeze_stages(initial.model, config.freeze_stages)
        lr_scales = build_lr_scales(initial.model, config, len(self.workload.classes))
        if config.recompute:
            from equipoise.training.memory.recompute import recompute_blocks  # others keep everything

            recompute_blocks(config, initial.model)
        self.sharded = shard_model(config, initial.model, self.mesh, self.workload, self.loader)
        del initial  # of which a worker may hold only a part from now on
        self.model = self.sharded.module
        self.evaluator = Evaluator(self.workload, self.loader, self.sharded)
        self._set_train_mode()
        self.trainable_parameters = list(self.sharded.parameters.values())
        optimizer = self.sharded.build_optimizer(lr_scales)
        self.timer = StepTimer(config, self.rank, self.workers, self.device)
        self.backward_pass = BackwardPass(config, self.workload, self.model, self.device)
        self.steps = self.sharded.build_steps(self.backward_pass, optimizer, self.timer, self.max_examples)
        self.optimizer = self.steps.optimizer
        self.kept_weights = build_kept_weights(config, self.sharded, self.steps, self.timer)
        # asynchronous workers wait for each other at the end of steps that are taken together
        is_measurable = not config.compile and not config.sync_method.staleness
        self.peak_memory = PeakMemory(self.device, self.steps.interval, is_measurable)

    @property
    def gradient_sync(self) -> GradientAllReduce:
        """Sums over workers: of gradients, or of the weights that they average."""
        return self.steps.sync

    @property
    def examples_seen(self) -> int:
        """Number of examples in the optimizer steps taken so far."""
        return self.loader.order.seen_before(self.step)

    def laps(self) -> Iterator[Lap]:
        """Yield laps until the target or `max_examples` is reached or the loss is no longer finite."""
        self.steps.begin(self.loader, self.step)
        if self.workers > 1:
            self.prepare_all_reduce()
            dist.barrier()  # else the first exchange would include the wait for a worker that starts late
        while self.status is None:
            lap = self._run_lap()
            if self.status is None:
                self.finished_laps.append(lap)
                if self.kept_weights.best and find_best_lap(self.finished_laps, self.target) is lap:
                    self.kept_weights.keep_best()
                self._update_status()
                yield lap

    def prepare_all_reduce(self) -> None:
        """Let `--all-reduce auto` choose the algorithm of each bucket, where that has not been done."""
        if self.gradient_sync.workers > 1 and not self.gradient_sync.algorithms:
            from equipoise.training.all_reduce_choice import resume_or_choose_algorithms

            resume_or_choose_algorithms(self.gradient_sync, self.finished_laps)

    def evaluate(self, split: Split) -> float:
        """Return the workload's metric on a split, computed by all workers together."""
        self.model.eval()
        with self.kept_weights.give_evaluated():
            value = self.evaluator.evaluate(split, self.autocast, self._all_reduce_sum)
        self._set_train_mode()
        return value

    def load_kept_weights(self) -> None:
        """Give the model of a run that ended the weights that --keep names, with adapters merged into them.

        From then on every worker has the whole model. All workers call it together.
        """
        self.kept_weights.load_into_model()
        if self.config.sharding_method.kind != "none" and self.workers > 1:
            self._hold_whole_model()
        if self.config.lora_rank:
            merge_adapters(self.model)

    def _hold_whole_model(self) -> None:
        """Replace this worker's part of the model by the whole of it."""
        model = build_shared_model(self.config, self.workload, self.device, workers=1).model
        weights = collect_weights(model)
        for name, value in self.sharded.gather_weights():
            weights[name].copy_(value)
        self.model = model
        self.sharded = ShardedModel(self.config, model, WorkerMesh(rank=self.rank, workers=self.workers))
        self.evaluator = Evaluator(self.workload, self.loader, self.sharded)

    def fits_in_memory(self) -> bool:
        """Return whether a micro-batch fits every worker's memory; without an exchange, which could wait forever."""
        out_of_memory = runs_out_of_memory(self._try_micro_batch)
        for parameter in self.trainable_parameters:
            parameter.grad = None
        return not self.all_reduce_max(out_of_memory)

    def _try_micro_batch(self) -> None:
        inputs, targets = next(self.loader.train_batches(self.micro_indices, self.step))
        self.sharded.try_micro_batch(self.backward_pass, inputs, targets, self.step, self.micro_indices[0])

    def all_reduce_max(self, value: int) -> int:
        """Return the largest `value` of any worker, the same on all of them."""
        largest = torch.tensor(value, device=self.device)
        if self.workers > 1:
            dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    @property
    def examples_to_target(self) -> float | None:
        """Examples seen when the metric crossed the target, interpolated; None if it has not."""
        return examples_at_target(self.finished_laps, self.target)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all tensors that the next step of this process depends on; finished laps are saved separately.

        The order of examples, augmentation, dropout and the learning rate are functions of
        the seed and the step, so no generator or sampler has a state to save.

        With --compression and --sharding some of the tensors are this process's alone: a run in several processes is
        resumed from those of all of them, or each from its own where their number is the same.
        """
        return {**self._collect_state(is_saved=False).tensors, **self.own_state_dict()}

    def saved_state(self) -> StatePart:
        """Return what this process saves of the state: a tensor that several hold is saved by one of them."""
        return self._collect_state(is_saved=True)

    def _collect_state(self, is_saved: bool) -> StatePart:
        parts = self.sharded, self.optimizer, self.kept_weights.list_copies(), self.steps.state_dict()
        return collect_training_state(*parts, is_saved=is_saved)

    def own_state_dict(self) -> dict[str, Tensor]:
        """Return the tensors of `state_dict` that only this process has: what compression left out here."""
        return move_to_cpu(self.steps.list_errors())

    def load_state_dict(self, tensors: Mapping[str, Tensor], finished_laps: list[Lap]) -> None:
        """Resume from whole tensors by the names of `state_dict`, and the laps that led to them."""
        self.steps.load_state_dict(
            load_training_state(self.sharded, self.optimizer, self.kept_weights.list_copies(), tensors)
        )
        self.steps.load_errors(tensors)
        self.finished_laps = list(finished_laps)
        self.step = finished_laps[-1].step if finished_laps else 0
        self._update_status()

    def _set_train_mode(self) -> None:
        """Put all modules but the frozen ones in training mode."""
        self.model.train()
        for module in self.frozen_modules:
            module.eval()

    def _run_lap(self) -> Lap:
        self.peak_memory.begin_lap(self.sharded, self.steps, self.kept_weights)
        start = self.timer.begin_lap()
        with flush_denormals():
            count = self._steps_in_lap()
            losses = self.peak_memory.take_steps(self.take_steps, count)
        self.timer.record_span("lap", start)
        self.timer.peak_bytes = self.peak_memory.bytes
        weight = 1 / self.loader.order.num_micro_batches if self.mesh.counts_results else 0.0
        lap, means = self.timer.finish_lap(
            losses.sum(1) * weight, self.step, self._lr_at(self.step), self._all_reduce_sum
        )
        lap = replace(self.steps.describe_exchange(lap), seen=self.examples_seen)
        self._check_losses(means)
        if self.workers > 1 and not self.config.sync_method.is_local:  # which has averaged them with the weights
            self.sharded.average_buffers()
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
        """Return the number of steps until the next evaluation, the end of the run or the longest lap.

        They are whole intervals between exchanges: before an exchange each worker has weights of its own.
        """
        interval = self.steps.interval
        end: float = min((self.examples_seen // self.eval_every + 1) * self.eval_every, self.max_examples)
        if self.batch_grower:
            end = min(end, self.batch_grower.find_lap_end(self.examples_seen))
        intervals = math.ceil((end - self.examples_seen) / (self.loader.order.global_batch * interval))
        return interval * min(max(1, MAX_LAP_STEPS // interval), intervals)

    def take_steps(self, count: int) -> Tensor:
        """Take optimizer steps, whole intervals of them, and return the losses by step and own micro-batch."""
        losses = self.steps.run(self.step, count, self.peak_memory.follow_steps(self._lr_at))
        self.step += count
        return losses

    def _lr_at(self, step: int) -> float:
        """Return the learning rate of the optimizer step with number `step`, counted from 1."""
        seen = self.loader.order.seen_before(step)
        return self.config.lr * lr_scale(self.config.schedule, seen, self.warmup_examples, self.max_examples)

    def autocast(self) -> AbstractContextManager[object]:
        """Return the context in which the model computes: bfloat16 where --precision asks for it."""
        return self.backward_pass.autocast()

    def _check_losses(self, losses: Tensor) -> None:
        not_finite = torch.nonzero(~torch.isfinite(losses))
        if len(not_finite):
            first = int(not_finite[0])
            step = self.step - len(losses) + first + 1
            self._fail(f"the loss was {float(losses[first])} at step {step}")

    def _all_reduce_sum(self, tensor: Tensor) -> Tensor:
        if self.workers > 1:
            dist.all_reduce(tensor)
        return tensor

    def _fail(self, reason: str) -> None:
        self.status, self.reason = "failed", reason

    def _update_status(self) -> None:
        if self.batch_grower:
            self.batch_grower.resize_steps(self)
        limits = self.target, self.max_examples, self.config.patience
        self.status, self.reason = find_run_end(self.finished_laps, *limits)
