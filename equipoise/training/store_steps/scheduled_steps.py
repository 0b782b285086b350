"""Asynchronous steps of several workers in one process, in an order that is known before: simulated, or replayed.

The order of updates and replies does not depend on the weights. So this process computes the gradients of the tickets
that were pulled at a version while its weights are in place, keeps them until the update that contains them, and needs
no other version.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from torch import Tensor

from equipoise.config import TrainConfig
from equipoise.parameter_store.arrivals.lap_arrivals import LapArrivals
from equipoise.parameter_store.arrivals.virtual_clock import simulate_lap
from equipoise.parameter_store.order import Push, UpdateOrder
from equipoise.runs.record import Lap
from equipoise.training.dataloader import BatchLoader
from equipoise.training.gradient_sync import GradientAllReduce
from equipoise.training.store_steps.exchange_without_state import ExchangeWithoutState
from equipoise.training.store_steps.ticket_gradient import TicketGradient
from equipoise.training.store_steps.update import UpdateStep, update_lr
from equipoise.training.store_steps.worker_buffers import WorkerBuffers


class ArrivalSchedule(Protocol):
    """Source of the arrivals of a lap before it is computed."""

    def schedule_lap(self, step: int, num_steps: int) -> LapArrivals:
        """Return the arrivals of the steps after `step` others."""


class VirtualWorkers:
    """Arrivals of workers with constant speeds, on a clock that is simulated."""

    def __init__(self, config: TrainConfig, seconds_per_ticket: tuple[float, ...] = ()) -> None:
        """Simulate the workers of the options, of equal speed unless the seconds of a ticket of each are given."""
        self.seconds_per_ticket = seconds_per_ticket or (1.0,) * config.workers
        self.tickets_per_step = config.workers
        self.order = UpdateOrder(config.sync_method.staleness, config.workers)

    def schedule_lap(self, step: int, num_steps: int) -> LapArrivals:
        """Return the arrivals of the steps after `step` others."""
        first, end = step * self.tickets_per_step, (step + num_steps) * self.tickets_per_step
        updates = simulate_lap(self.order, first, end, self.seconds_per_ticket)
        workers = len(self.seconds_per_ticket)
        return LapArrivals.from_updates(updates, step=step + num_steps, steps=num_steps, workers=workers)


class ScheduledSteps(ExchangeWithoutState):
    """Steps of all workers of an asynchronous run in this process."""

    interval = 1  # steps between which a lap may end

    def __init__(
        self,
        config: TrainConfig,
        gradient: TicketGradient,
        update_step: UpdateStep,
        buffers: WorkerBuffers,
        schedule: ArrivalSchedule,
    ) -> None:
        self.config, self.gradient, self.update_step, self.buffers = config, gradient, update_step, buffers
        self.schedule, self.optimizer = schedule, update_step.optimizer
        self.sync = GradientAllReduce([], workers=1)  # nothing is summed over processes
        self.last_arrivals: LapArrivals | None = None
        self.loader: BatchLoader | None = None
        self.arrival_lines: list[str] = []

    def begin(self, loader: BatchLoader, step: int) -> None:
        """Start with the step after `step` others."""
        self.loader = loader

    def run(self, step: int, num_steps: int, lr_at: Callable[[int], float]) -> Tensor:
        """Apply the tickets of the steps after `step` others, and return the losses by step and micro-batch."""
        assert self.loader is not None  # noqa: S101 - `begin` comes first
        arrivals = self.schedule.schedule_lap(step, num_steps)
        self.gradient.begin_lap(step, num_steps)
        self.buffers.begin_lap(arrivals.workers)
        pulled: list[list[Push]] = [[] for _ in arrivals.updates]  # by version
        for pushes in arrivals.updates:
            for push in pushes:
                pulled[push.version].append(push)
        places = [self.gradient.list_micro_batches(push.ticket) for pushes in pulled for push in pushes]
        batches = self.loader.load_micro_batches([place for ticket_places in places for place in ticket_places])
        gradients: dict[int, list[Tensor]] = {}
        for pulled_pushes, pushes in zip(pulled, arrivals.updates, strict=True):
            for push in pulled_pushes:
                self.buffers.switch_to(push.worker)
                gradients[push.ticket] = self.gradient.compute(push.ticket, batches)
            self._update([push.ticket for push in pushes], gradients, lr_at)
        self.buffers.end_lap()
        self.last_arrivals = arrivals
        self.arrival_lines.append(arrivals.to_line())
        return self.gradient.losses

    def _update(self, tickets: list[int], gradients: dict[int, list[Tensor]], lr_at: Callable[[int], float]) -> None:
        """Update the weights with the gradients of tickets, which are kept no longer."""
        timer = self.gradient.timer
        mark = timer.mark()
        lr = update_lr(tickets, self.config.workers, lr_at)
        self.update_step.apply([gradients.pop(ticket) for ticket in tickets], lr)
        timer.record_span("compute", mark)

    def describe_exchange(self, lap: Lap) -> Lap:
        """Return a lap with the staleness of its pushes."""
        assert self.last_arrivals is not None  # noqa: S101 - `run` comes first
        arrivals = self.last_arrivals
        return replace(lap, mean_staleness=arrivals.mean_staleness, max_staleness=max(arrivals.staleness))
