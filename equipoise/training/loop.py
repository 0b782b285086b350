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

from equipoise import rng as keys
from equipoise.config import Trial
from equipoise.runs.record import Lap, crossing
from equipoise.training import checkpoint as state
from equipoise.training import finetune as start
from equipoise.training import gradient_norms as probe
from equipoise.training import lr_schedules as schedule
from equipoise.training import sampler as stream
from equipoise.training.dataloader import DTYPES, Feed
from equipoise.training.gradient_sync import Exchange
from equipoise.training.optimizers import Optimizer
from equipoise.training.step_timer import Meter
from equipoise.workloads import Split, Workload, workload

LAP_STEPS = 100  # no lap is longer, so that a long way between evaluations shows signs of life


def laps(trial: Trial) -> Iterator[Lap]:
    """Train as `trial` asks, a lap at a time."""
    yield from Training(trial).laps()


class Training:
    """A trial under way: model, optimizer and place in the stream of examples.

    `ended` is None until the laps are over, then `reached`, `cap` or `failed: why`.
    """

    def __init__(self, trial: Trial, made: Workload | None = None, device: torch.device | None = None) -> None:
        grouped = dist.is_available() and dist.is_initialized()
        self.rank, self.workers = (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)
        self.trial = trial
        self.device = device or torch.device("cpu")
        self.workload = made or workload(trial)
        self.places = stream.share(trial.places, self.rank, self.workers)
        self.cap = self.workload.cap(trial)
        self.every = self.workload.every(trial)
        self.warmup = trial.warmup * len(self.workload.train)
        self.target = self.workload.target if trial.target is None else trial.target
        self.step = 0
        self.done: list[Lap] = []
        self.ended: str | None = None
        self.feed = Feed(trial, self.workload, self.device)
        self.reused: list[str] = []  # classes whose rows of the classifier were taken over
        self.model = self._model()
        self.frozen = start.frozen(self.model, trial.freeze)
        self._learn()
        self.forward = torch.compile(self.model) if trial.compile else self.model
        named = {name: parameter for name, parameter in self.model.named_parameters() if parameter.requires_grad}
        self.trained = list(named.values())
        self.optimizer = Optimizer(trial, named, start.shares(self.model, trial, len(self.workload.classes)))
        self.exchange = Exchange(self.trained, self.workers)
        # a micro-batch's part of the mean loss
        self.part = torch.tensor(1 / trial.places, device=self.device, dtype=DTYPES[trial.precision])
        self.meter = Meter(trial, self.rank, self.workers, self.device)
        self.generator = generator(self.device)
        self.ahead: tuple[Tensor, Tensor] | None = None  # the next micro-batch, if it is there already

    @property
    def seen(self) -> int:
        """Examples that the optimizer has stepped over."""
        return self.step * self.trial.global_batch

    def laps(self) -> Iterator[Lap]:
        """Laps until the target is crossed, the cap is met or the loss is no longer finite."""
        batches, self.ahead = self.feed.training(self.places, self.step), None
        if self.workers > 1:
            dist.barrier()  # the first exchange would count the wait for a worker that starts late
        while self.ended is None:
            lap = self._lap(batches)
            if self.ended is None:
                self.done.append(lap)
                self.ended = self._end()
                yield lap

    def metric(self, split: Split) -> float:
        """The workload's metric on a split, computed by all workers together."""
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.model.eval()
        with torch.no_grad():
            for images, labels in self.feed.once(split, self.rank, self.workers):
                with self._precision():
                    total += self.workload.metric(self.model(images), labels).sum()
        self._learn()
        return float(self._summed(total)) / len(split)

    def fits(self) -> bool:
        """Whether a micro-batch fits the memory of every worker: tried without exchange, where one waits for all."""
        images, labels = next(self.feed.training(self.places, self.step))
        try:
            self._backward(images, labels, self.places[0])
            lacking = 0
        except torch.OutOfMemoryError:
            lacking = 1
        for parameter in self.trained:
            parameter.grad = None
        return not self.agree(lacking)

    def agree(self, wish: int) -> int:
        """The largest wish of any worker: all of them get the same answer."""
        wishes = torch.tensor(wish, device=self.device)
        if self.workers > 1:
            dist.all_reduce(wishes, dist.ReduceOp.MAX)
        return int(wishes)

    @property
    def crossing(self) -> float | None:
        """Examples seen when the metric crossed the target, interpolated."""
        return crossing(self.done, self.target)

    def state(self) -> dict[str, Tensor]:
        """All that the next step depends on, beside the laps done.

        The order of examples, augmentation, dropout and the learning rate are functions of
        the seed and the step, so no generator or sampler has a state to keep.
        """
        return state.tensors(self.model, self.optimizer)

    def load(self, tensors: dict[str, Tensor], done: list[Lap]) -> None:
        """Go on from a `state` and the laps that led to it."""
        state.load(self.model, self.optimizer, tensors)
        self.done = list(done)
        self.step = done[-1].step if done else 0
        self.ended = self._end()

    def _model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.trial.seed)
            model = self.workload.model()
        if before := start.learned(self.trial):
            self.reused = start.begun(model, before, list(self.workload.classes), self.trial.reuse)
        layout = torch.channels_last if self.trial.channels_last else torch.preserve_format
        model = model.to(self.device, DTYPES[self.trial.precision], memory_format=layout)  # type: ignore[call-overload]
        if self.workers > 1:  # processors of different make may round the same draw differently
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)
        return model  # type: ignore[no-any-return]

    def _learn(self) -> None:
        """All but what is frozen in training mode."""
        self.model.train()
        for module in self.frozen:
            module.eval()

    def _lap(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Lap:
        start = self.meter.mark()
        steps = self._steps_ahead()
        with no_denormals():
            losses = torch.stack([loss for _ in range(steps) for loss in self._step(batches)])
        self.meter.add("lap", start)
        lap, means = self.meter.lap(
            losses.view(steps, -1).sum(1) * self.part, self.step, self._lr(self.step), self._summed
        )
        self._check(means)
        if self.workers > 1:
            self._average_buffers()
        due = self.seen // self.every > (self.seen - lap.examples) // self.every or self.seen >= self.cap
        if due and self.ended is None:
            lap = replace(lap, metric=self.metric(self.workload.validation))
            if not math.isfinite(lap.metric or 0.0):
                self.ended = f"failed: the metric was {lap.metric} on the validation split at step {self.step}"
        return lap

    def _steps_ahead(self) -> int:
        """Steps until the next evaluation, the cap or the longest lap."""
        until = min((self.seen // self.every + 1) * self.every, self.cap)
        return min(LAP_STEPS, math.ceil((until - self.seen) / self.trial.global_batch))

    def _step(self, batches: Iterator[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """One optimizer step; the mean losses of this worker's micro-batches."""
        meter, probing = self.meter, self._probing()
        mark = meter.mark()
        for parameter in self.trained:
            parameter.grad = None
        losses = []
        for place in self.places:
            images, labels = self.ahead or next(batches)
            self.ahead = None
            mark = meter.add("data", mark)
            if probing and place == self.places[0]:
                self._probe(images, labels)
                mark = meter.add("probe", mark)
            if place == self.places[-1]:
                self.exchange.arm(meter.norms if self.trial.probe else None)
            losses.append(self._backward(images, labels, place))
            mark = meter.add("compute", mark)
        self.exchange.start()
        if self.workers > 1:
            mark = meter.add("exchange", mark)
            self.ahead = next(batches)  # while others are waited for
            mark = meter.add("data", mark)
            self.exchange.finish()
            mark = meter.add("exchange", mark)
        self.step += 1
        self.optimizer.step(self._lr(self.step))
        meter.add("compute", mark)
        return losses

    def _backward(self, images: Tensor, labels: Tensor, place: int) -> Tensor:
        self.generator.manual_seed(keys.key(self.trial.seed, self.step, place))
        with self._precision():
            loss = self.workload.loss(self.forward(images), labels)
        # scaled here: `backward` checks a gradient given to it at length, the first time by half a second of imports
        (loss if self.trial.places == 1 else loss * self.part.to(loss.dtype)).backward()
        return loss.detach()

    def _probing(self) -> bool:
        """Whether this step's gradient is looked at by halves: with several workers their exchange shows it."""
        trial = self.trial
        return self.workers == 1 and trial.batch > 1 and trial.probe > 0 and self.step % trial.probe == 0

    def _probe(self, images: Tensor, labels: Tensor) -> None:
        self.generator.manual_seed(keys.key(self.trial.seed, self.step, self.trial.places))
        with self._precision():
            local, total = probe.by_halves(self.model, self.workload.loss, images, labels)
        self.meter.norms.add(local, total)

    def _lr(self, step: int) -> float:
        """The learning rate of the step that ends as number `step`."""
        ends = step * self.trial.global_batch
        return self.trial.lr * schedule.share(self.trial.schedule, ends, self.warmup, self.cap)

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.trial.precision == "bf16" else nullcontext()

    def _check(self, losses: Tensor) -> None:
        wrong = torch.nonzero(~torch.isfinite(losses))
        if len(wrong):
            first = int(wrong[0])
            step = self.step - len(losses) + first + 1
            self.ended = f"failed: the loss was {float(losses[first])} at step {step}"

    def _average_buffers(self) -> None:
        """Running statistics become the mean of all workers', so that one checkpoint holds the state of all."""
        for buffer in self.model.buffers():
            if buffer.is_floating_point():
                buffer.copy_(self._summed(buffer.clone()) / self.workers)

    def _summed(self, tensor: Tensor) -> Tensor:
        if self.workers > 1:
            dist.all_reduce(tensor)
        return tensor

    def _end(self) -> str | None:
        if self.crossing is not None:
            return "reached"
        return "cap" if self.seen >= self.cap else None


@contextmanager
def no_denormals() -> Iterator[None]:
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


def generator(device: torch.device) -> torch.Generator:
    """The generator that dropout draws from."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator
