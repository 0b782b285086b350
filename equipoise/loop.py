"""Synchronous data parallelism as a generator of laps.

A global batch is a row of places, each a micro-batch. Which examples stand at a place,
how they are augmented and which units drop out there depends on the seed and the place
alone, so workers may share the places in any way: n workers, one worker that
accumulates, or four that become three in mid-run all take the same steps.

`torch.distributed` is asked for the process group; without one there is one worker.
"""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise import keys, probe, schedule, stream
from equipoise.exchange import Exchange
from equipoise.feed import DTYPES, Feed
from equipoise.record import Lap, crossing
from equipoise.trial import Trial
from equipoise.watch import Watch
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
        examples = len(self.workload.train)
        self.cap = self.workload.cap(trial)
        self.every = trial.evaluate or max(1, examples // 4)
        self.warmup = trial.warmup * examples
        self.target = self.workload.target if trial.target is None else trial.target
        self.step = 0
        self.done: list[Lap] = []
        self.ended: str | None = None
        self.feed = Feed(trial, self.workload, self.device)
        self.model = self._model()
        self.forward = torch.compile(self.model) if trial.compile else self.model
        self.optimizer = optimizer(trial, self.model)
        self.exchange = Exchange(self.model.parameters(), self.workers)
        self.watch = Watch(self.device)
        self.norms = probe.Norms()
        self.generator = generator(self.device)

    @property
    def seen(self) -> int:
        """Examples that the optimizer has stepped over."""
        return self.step * self.trial.global_batch

    def laps(self) -> Iterator[Lap]:
        """Laps until the target is crossed, the cap is met or the loss is no longer finite."""
        batches = self.feed.training(self.places, self.step)
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
        self.model.train()
        return float(self._summed(total)) / len(split)

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
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in moments.items()}
        return tensors

    def load(self, tensors: dict[str, Tensor], done: list[Lap]) -> None:
        """Go on from a `state` and the laps that led to it."""
        weights: dict[str, Tensor] = {}
        moments: dict[int, dict[str, Tensor]] = {}
        trained = self.optimizer.param_groups[0]["params"]
        for name, value in tensors.items():
            kind, _, rest = name.partition(".")
            if kind == "model":
                weights[rest] = value
            else:
                index, _, moment = rest.partition(".")
                moments.setdefault(int(index), {})[moment] = laid_out(value, trained[int(index)])
        self.model.load_state_dict(weights)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self.done = list(done)
        self.step = done[-1].step if done else 0
        self.ended = self._end()

    def _model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.trial.seed)
            model = self.workload.model()
        layout = torch.channels_last if self.trial.channels_last else torch.preserve_format
        model = model.to(self.device, DTYPES[self.trial.precision], memory_format=layout)  # type: ignore[call-overload]
        if self.workers > 1:  # processors of different make may round the same draw differently
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, 0)
        return model.train()  # type: ignore[no-any-return]

    def _lap(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Lap:
        steps = self._steps_ahead()
        self.watch.read()
        start = self.watch.mark()
        losses = torch.stack([self._step(batches) for _ in range(steps)])
        self.watch.add("all", start, self.watch.mark())
        lap = self._measured(losses)
        if self.workers > 1:
            self._average_buffers()
        due = self.seen // self.every > (self.seen - lap.examples) // self.every or self.seen >= self.cap
        if due and self.ended is None:
            lap = replace(lap, metric=self.metric(self.workload.validation))
        return lap

    def _steps_ahead(self) -> int:
        """Steps until the next evaluation, the cap or the longest lap."""
        until = min((self.seen // self.every + 1) * self.every, self.cap)
        return min(LAP_STEPS, math.ceil((until - self.seen) / self.trial.global_batch))

    def _step(self, batches: Iterator[tuple[Tensor, Tensor]]) -> Tensor:
        """One optimizer step; this worker's part of the mean loss."""
        watch, probing = self.watch, self._probing()
        self._set_lr()
        for parameter in self.model.parameters():
            parameter.grad = None
        losses = []
        for place in self.places:
            start = watch.mark()
            images, labels = next(batches)
            loaded = watch.mark()
            watch.add("data", start, loaded)
            if probing and place == self.places[0]:
                self._probe(images, labels)
                probed = watch.mark()
                watch.add("probe", loaded, probed)
                loaded = probed
            if place == self.places[-1]:
                self.exchange.arm(self.norms if self.trial.probe else None)
            losses.append(self._backward(images, labels, place))
            computed = watch.mark()
            watch.add("compute", loaded, computed)
        self.exchange.finish()
        exchanged = watch.mark()
        watch.add("exchange", computed, exchanged)
        self.optimizer.step()
        watch.add("compute", exchanged, watch.mark())
        self.step += 1
        return torch.stack(losses).sum() if len(losses) > 1 else losses[0]

    def _backward(self, images: Tensor, labels: Tensor, place: int) -> Tensor:
        self.generator.manual_seed(keys.key(self.trial.seed, self.step, place))
        with self._precision():
            loss = self.workload.loss(self.forward(images), labels)
        if self.trial.places > 1:
            loss = loss / self.trial.places
        loss.backward()
        return loss.detach()

    def _probing(self) -> bool:
        """Whether this step's gradient is looked at by halves: with several workers their exchange shows it."""
        trial = self.trial
        return self.workers == 1 and trial.batch > 1 and trial.probe > 0 and self.step % trial.probe == 0

    def _probe(self, images: Tensor, labels: Tensor) -> None:
        self.generator.manual_seed(keys.key(self.trial.seed, self.step, self.trial.places))
        with self._precision():
            local, total = probe.by_halves(self.model, self.workload.loss, images, labels)
        self.norms.local.append(local)
        self.norms.total.append(total)
        self.norms.draws += 1

    def _set_lr(self) -> None:
        ends = self.seen + self.trial.global_batch
        for group in self.optimizer.param_groups:
            group["lr"] = self.trial.lr * schedule.share(self.trial.schedule, ends, self.warmup, self.cap)

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, torch.bfloat16) if self.trial.precision == "bf16" else nullcontext()

    def _measured(self, losses: Tensor) -> Lap:
        """The lap just run, from what every worker saw of it."""
        own = self.watch.read()
        local, total, draws = self.norms.take()
        if self.workers > 1:  # what was summed is this worker's part of the mean, scaled here to its own mean
            local *= (self.trial.places / len(self.places)) ** 2
        columns = [own["all"] - own["probe"], own["data"], own["compute"], own["exchange"], local, total]
        table = torch.zeros(self.workers, len(columns), dtype=torch.float64)
        table[self.rank] = torch.tensor(columns, dtype=torch.float64)
        shared = self._summed(torch.cat([losses.double(), table.flatten().to(self.device)])).cpu()
        losses, table = shared[: len(losses)], shared[len(losses) :].view_as(table)
        self._check(losses)
        seconds, data, compute, exchange = table[:, :4].amax(0).tolist()
        norms = {}
        if draws and table[:, 4:].isfinite().all():
            small, big = self._compared()
            local, total = (table[:, 4:].mean(0) / draws).tolist()
            norms = {"local_norm": local, "total_norm": total, "local_batch": small, "total_batch": big}
        return Lap(
            step=self.step,
            steps=len(losses),
            seen=self.seen,
            examples=len(losses) * self.trial.global_batch,
            workers=self.workers,
            lr=self.optimizer.param_groups[0]["lr"],
            loss=float(losses.mean()),
            seconds=seconds,
            data_seconds=data,
            compute_seconds=compute,
            exchange_seconds=exchange,
            draws=draws,
            **norms,
        )

    def _compared(self) -> tuple[float, int]:
        """Examples behind a local norm, and behind a total one."""
        if self.workers == 1:
            half = self.trial.batch // 2
            return half, 2 * half
        shares = [len(stream.share(self.trial.places, rank, self.workers)) for rank in range(self.workers)]
        return self.trial.batch * self.workers / sum(1 / held for held in shares), self.trial.global_batch

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


def laid_out(moment: Tensor, parameter: Tensor) -> Tensor:
    """A parameter's moment in the parameter's layout, which files do not keep and fused optimizers rely on."""
    return torch.empty_like(parameter).copy_(moment) if moment.shape == parameter.shape else moment


def optimizer(trial: Trial, model: nn.Module) -> torch.optim.Optimizer:
    """SGD with momentum or AdamW, one kernel for all parameters."""
    trained = [p for p in model.parameters() if p.requires_grad]
    if trial.optimizer == "adamw":
        return torch.optim.AdamW(trained, lr=trial.lr, weight_decay=trial.weight_decay, fused=True)
    return torch.optim.SGD(trained, lr=trial.lr, momentum=trial.momentum, weight_decay=trial.weight_decay, fused=True)


def generator(device: torch.device) -> torch.Generator:
    """The generator that dropout draws from."""
    if device.type == "cuda":
        torch.cuda.init()
        return torch.cuda.default_generators[device.index or 0]
    return torch.default_generator
