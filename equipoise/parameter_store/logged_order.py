"""Order of updates that is kept, for the log of arrivals of a lap."""

from equipoise.parameter_store.order import StoreEvent, Update, UpdateOrder


class LoggedOrder(UpdateOrder):
    """Order that keeps the updates of the lap."""

    def __init__(self, staleness: int, tickets_per_step: int) -> None:
        super().__init__(staleness, tickets_per_step)
        self.updates: list[Update] = []
        """complete once a worker knows that the lap is over"""

    def begin_lap(self, first_ticket: int, end_ticket: int) -> list[StoreEvent]:
        """Start a lap with an empty log."""
        self.updates = []
        return super().begin_lap(first_ticket, end_ticket)

    def on_push(self, worker: int, ticket: int) -> list[StoreEvent]:
        """Keep the update that follows when the gradient of a ticket arrives, if there is one."""
        events = super().on_push(worker, ticket)
        self.updates += [event for event in events if isinstance(event, Update)]
        return events
