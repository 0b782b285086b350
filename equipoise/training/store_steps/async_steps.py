"""Steps of `--sync async:S` in several processes: each worker pulls weights and a ticket, computes it, and pushes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals.lap_arrivals import LapArrivals
from equipoise.parameter_store.arrivals.logged_order import LoggedOrder
from equipoise.parameter_store.order import Update
from equipoise.parameter_store.servers.server_messages import LapStart
from equipoise.parameter_store.store import ParameterStore
from equipoise.runs.record import Lap
from equipoise.training.dataloader import BatchLoader, InputsAndTargets
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.store_steps.exchange_without_state import ExchangeWithoutState
from equipoise.training.store_steps.server_steps import StoreOptimizer
from equipoise.training.store_steps.ticket_gradient import TicketGradient
from equipoise.training.store_steps.update import update_lr


class AsyncSteps(ExchangeWithoutState):
    """Steps of the worker of this process, which waits for no other within a lap unless its work would be too stale."""

    interval = 1  # steps between which a lap may end

    def __init__(
        self, config: TrainConfig, gradient: TicketGradient, store: ParameterStore, order: LoggedOrder | None
    ) -> None:
        """Take the steps of one process; that of the first server has the order that decides for all."""
        self.config, self.gradient, self.store, self.order = config, gradient, store, order
        self.processes = store.channel.processes
        self.optimizer = StoreOptimizer(store)
        self.sync = GradientAllReduce([], self.processes)  # no gradient is summed by all processes together
        self.arrival_lines: list[str] = []  # complete in the process that has the order
        self.last_arrivals: LapArrivals | None = None
        self.sent_bytes = 0  # before the lap
        self.loader: BatchLoader | None = None

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the step after `step` others, from the weights that the model has now."""
        self.loader = loader
        self.store.load({})

    def run(self, step: int, num_steps: int, lr_at: Callable[[int], float]) -> Tensor:
        """Take part in steps after `step` others; return losses by step and micro-batch, 0 for those of others."""
        workers, client, timer = self.config.workers, self.store.client, self.gradient.timer
        assert client is not None  # noqa: S101 - each process is a worker of an asynchronous store
        self.sent_bytes = self.store.sent_bytes
        rates = {index: lr_at(index) for index in range(step + 1, step + num_steps + 1)}
        lr_of_update = partial(find_update_lr, rates, workers)
        self.store.begin_lap(LapStart(step * workers, (step + num_steps) * workers, lr_of_update))
        self.gradient.begin_lap(step, num_steps)
        mark = timer.mark()
        while (ticket := client.pull().ticket) is not None:
            timer.record_span("exchange", mark)
            gradients = self.gradient.compute(ticket, self._load_batches(ticket))
            mark = timer.mark()
            client.push(ticket, gradients)
        timer.record_span("exchange", mark)
        if self.order is not None:
            self.last_arrivals = LapArrivals.from_updates(
                self.order.updates, step=step + num_steps, steps=num_steps, workers=self.processes
            )
            self.arrival_lines.append(self.last_arrivals.to_line())
        return self.gradient.losses

    def _load_batches(self, ticket: int) -> Iterator[InputsAndTargets]:
        """Yield the micro-batches of a ticket: no other is known yet that they could be prepared with."""
        assert self.loader is not None  # noqa: S101 - `begin` comes first
        for step, micro_index in self.gradient.list_micro_batches(ticket):
            yield self.loader.load_micro_batch(step, micro_index)

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with what workers exchanged and the staleness of pushes, the same in all processes."""
        arrivals = self.last_arrivals
        staleness = [0.0, 0.0] if arrivals is None else [arrivals.mean_staleness, float(max(arrivals.staleness))]
        sent_bytes = self.store.sent_bytes - self.sent_bytes
        shared = torch.tensor([*staleness, float(sent_bytes)], dtype=torch.float64, device=self.gradient.losses.device)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        mean, largest, sent = shared.tolist()
        return replace(
            lap,
            mean_staleness=mean,
            max_staleness=int(largest),
            sent_bytes=round(sent / lap.steps),
            rounds=2 * self.config.workers / self.processes,  # pushes and pulls of a worker that has its share
        )


def find_update_lr(rates: Mapping[int, float], tickets_per_step: int, update: Update) -> float:
    """Return the learning rate of an update, given those of the steps of a lap by their number from 1."""
    return update_lr([push.ticket for push in update.pushes], tickets_per_step, rates.__getitem__)
