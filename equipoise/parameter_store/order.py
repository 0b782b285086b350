"""Order in which the servers of `--sync async:S` apply pushes and answer pulls, as one of them decides it for all.

The examples of a run are a fixed sequence of tickets: with n configured workers, ticket t stands for the micro-batches
of worker t % n in the global batch t // n. A worker pulls weights and a ticket, computes the gradient of the ticket at
these weights, pushes it, and pulls again, so that faster workers compute more tickets. The staleness of a push is the
number of updates between the weights it was computed at and the update that contains it.

A push is an update of its own as soon as it arrives, unless the work of another worker would become staler than S by
it. Then it is held, and once the oldest work has been pushed too, all that is held becomes one update. With S = 0
nothing may be stale: all tickets of a global batch are one update, however many workers compute them.
"""

from collections import deque
from typing import NamedTuple


class Push(NamedTuple):
    """Gradient of a ticket that a worker has computed, or computes."""

    ticket: int
    """number of the ticket in the whole run"""
    version: int
    """updates of the lap before the weights that the gradient is computed at"""
    worker: int
    """rank of the process that computes it"""


class Update(NamedTuple):
    """Step of the optimizer along the mean of pushes, in the order of their tickets; it makes the next version."""

    pushes: tuple[Push, ...]


class Reply(NamedTuple):
    """Weights that a worker has asked for, with the ticket to compute; without one the lap is over."""

    worker: int
    ticket: int | None
    version: int


StoreEvent = Update | Reply


class UpdateOrder:
    """Decide the order of updates and replies of each lap, from the pulls and pushes in the order of their arrival.

    A worker computes one ticket at a time. It pulls again right after a push; the pull waits while the push is held,
    and after the last ticket until all updates of the lap are done. A pull that comes before its lap waits for it.
    """

    def __init__(self, staleness: int, tickets_per_step: int) -> None:
        """Prepare laps of pushes that are never staler than `staleness`; a global batch has `tickets_per_step`."""
        self.staleness, self.tickets_per_step = staleness, tickets_per_step
        self.version = 0
        self.next_ticket = self.end_ticket = 0
        self.computing: dict[int, Push] = {}  # by worker
        self.held: list[Push] = []
        self.waiting: deque[int] = deque()  # workers whose pull has not been answered
        self.done_workers: set[int] = set()  # those that know that the lap is over
        self.is_begun = False  # whether there has been a lap

    @property
    def is_lap_over(self) -> bool:
        """Whether all tickets of the lap are part of an update."""
        return self.next_ticket == self.end_ticket and not self.computing and not self.held

    def begin_lap(self, first_ticket: int, end_ticket: int) -> list[StoreEvent]:
        """Start the lap of the tickets from `first_ticket` to before `end_ticket`, and answer pulls that came early.

        A lap is a number of whole global batches. Its versions count from 0.
        """
        if not self.is_lap_over:
            raise RuntimeError(f"the lap that ends with ticket {self.end_ticket} is not over")
        if first_ticket % self.tickets_per_step or end_ticket % self.tickets_per_step or first_ticket > end_ticket:
            raise ValueError(f"tickets {first_ticket} to {end_ticket} are not whole steps of {self.tickets_per_step}")
        self.version, self.next_ticket, self.end_ticket = 0, first_ticket, end_ticket
        self.done_workers, self.is_begun = set(), True
        return self._answer_pulls()

    def on_pull(self, worker: int) -> list[StoreEvent]:
        """Return what follows when a worker asks for weights and a ticket."""
        if worker in self.computing or worker in self.waiting:
            raise ValueError(f"worker {worker} pulls again before it has pushed")
        self.waiting.append(worker)
        return self._answer_pulls()

    def on_push(self, worker: int, ticket: int) -> list[StoreEvent]:
        """Return what follows when the gradient of a ticket arrives."""
        if worker not in self.computing or self.computing[worker].ticket != ticket:
            raise ValueError(f"worker {worker} pushes ticket {ticket}, which it has not been given")
        self.held.append(self.computing.pop(worker))
        if not self._may_update():
            return self._answer_pulls()  # with S = 0, a worker's next ticket of the step needs no update
        pushes = tuple(sorted(self.held))
        self.held.clear()
        self.version += 1
        return [Update(pushes), *self._answer_pulls()]

    def _may_update(self) -> bool:
        """Return whether what is held can become an update without making other work too stale."""
        if self.staleness == 0:
            return len(self.held) == self.tickets_per_step
        return all(self.version + 1 - push.version <= self.staleness for push in self.computing.values())

    def _answer_pulls(self) -> list[StoreEvent]:
        """Return the replies that can be given now, in the order of the pulls."""
        replies: list[StoreEvent] = []
        for worker in [worker for worker in self.waiting if self._may_answer(worker)]:
            if self.is_lap_over:
                self.done_workers.add(worker)
                replies.append(Reply(worker, None, self.version))
            elif self._has_ticket():
                self.computing[worker] = Push(self.next_ticket, self.version, worker)
                replies.append(Reply(worker, self.next_ticket, self.version))
                self.next_ticket += 1
            else:
                break
            self.waiting.remove(worker)
        return replies

    def _may_answer(self, worker: int) -> bool:
        """Return whether a pull belongs to this lap, and no push of its worker has to be applied first."""
        if not self.is_begun or worker in self.done_workers:
            return False
        return self.staleness == 0 or all(push.worker != worker for push in self.held)

    def _has_ticket(self) -> bool:
        """Return whether there is a ticket to compute at the weights of now."""
        is_step_given = len(self.held) + len(self.computing) == self.tickets_per_step
        return self.next_ticket < self.end_ticket and not (self.staleness == 0 and is_step_given)
