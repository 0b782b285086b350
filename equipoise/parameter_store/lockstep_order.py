"""Order of `--sync server`: an update has the pushes of all workers, whenever they arrive."""

from typing import Protocol

from equipoise.parameter_store.order import Push, Reply, StoreEvent, Update


class PushOrder(Protocol):
    """Order in which a server applies pushes and answers pulls, as they arrive; a worker pulls after each push."""

    def begin_lap(self, first_ticket: int, end_ticket: int) -> list[StoreEvent]:
        """Start the lap of the tickets from `first_ticket` to before `end_ticket`, and return what follows."""

    def on_pull(self, worker: int) -> list[StoreEvent]:
        """Return what follows when a worker asks for weights."""

    def on_push(self, worker: int, ticket: int) -> list[StoreEvent]:
        """Return what follows when the gradient of a ticket arrives."""


class LockstepOrder:
    """Order that does not depend on arrivals, so that each server has one of its own and none has to ask another."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.version = 0
        self.held: list[Push] = []
        self.waiting: set[int] = set()  # workers that get the weights after the next update

    def begin_lap(self, first_ticket: int, end_ticket: int) -> list[StoreEvent]:
        """Return nothing: pushes of a lap may come before it."""
        return []

    def on_pull(self, worker: int) -> list[StoreEvent]:
        """Return the weights of now for a worker, or nothing yet if the next update waits for its push or others."""
        if any(push.worker == worker for push in self.held):
            self.waiting.add(worker)
            return []
        return [Reply(worker, None, self.version)]

    def on_push(self, worker: int, ticket: int) -> list[StoreEvent]:
        """Return the update once all workers have pushed, and the weights for those that wait."""
        if any(push.worker == worker for push in self.held):
            raise ValueError(f"worker {worker} pushes ticket {ticket} before its last push is applied")
        self.held.append(Push(ticket, self.version, worker))
        if len(self.held) < self.workers:
            return []
        update = Update(tuple(sorted(self.held)))
        self.held.clear()
        self.version += 1
        replies = [Reply(waiting, None, self.version) for waiting in sorted(self.waiting)]
        self.waiting.clear()
        return [update, *replies]
