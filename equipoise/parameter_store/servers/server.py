"""Server of one part of the weights: a thread that applies updates and answers pulls, all in one total order.

Where the order depends on arrivals, the first server decides it and tells the others, which apply the same events to
their own keys as soon as they have what workers pushed to them. So weights that a worker pulls are of one version,
whichever servers they come from.
"""

from collections import deque
from queue import SimpleQueue

import torch

from equipoise.parameter_store.lockstep_order import PushOrder
from equipoise.parameter_store.order import StoreEvent, Update
from equipoise.parameter_store.part_buffer import MessageKind
from equipoise.parameter_store.servers.receivers import ServerPeers
from equipoise.parameter_store.servers.reply_outbox import ReplyOutbox, resolve_state
from equipoise.parameter_store.servers.server_messages import (
    Inbox,
    LapStart,
    LostPeer,
    PeerEvents,
    PeerNorms,
    ProcessRequest,
    PushedPart,
    ServerMessage,
    StateRequest,
    WorkerRequest,
    encode_events,
)
from equipoise.parameter_store.servers.server_part import ServerPart
from equipoise.parameter_store.servers.shared_norms import SharedNorms


class Server:
    """Server of one part; `order` is None where another server decides the order and sends it."""

    def __init__(
        self,
        part: ServerPart,
        outbox: ReplyOutbox,
        order: PushOrder | None,
        followers: ServerPeers | None,
        norms: SharedNorms | None,
        averages: bool,
    ) -> None:
        """Serve the workers of `outbox`; `followers` are the servers that this one tells the order.

        With `averages` the gradient of an update is the mean of what was pushed, otherwise the sum.
        """
        self.part, self.outbox, self.order, self.followers, self.norms = part, outbox, order, followers, norms
        self.averages = averages
        self.inbox: Inbox = SimpleQueue()
        self.events: deque[StoreEvent] = deque()  # to be done in this order
        self.pushed: dict[int, PushedPart] = {}  # by ticket
        self.lap: LapStart | None = None
        self.open_ranks = set(range(outbox.channel.processes))
        self.error: BaseException | None = None

    def run(self) -> None:
        """Serve until all processes have closed the store; after an error, answer that there was one."""
        torch.set_flush_denormal(True)  # of this thread, as in the main one: updates of denormal numbers are slow
        while self.open_ranks:
            message = self.inbox.get()
            try:
                if not self._end_or_report(message):
                    self._take(message)
                    self._run_events()
            except BaseException as error:
                self._fail(error)
            del message  # else its memory would be kept until the next one
        for peers in (self.followers, self.norms.peers if self.norms else None):
            if peers is not None:
                peers.close()

    def _end_or_report(self, message: ServerMessage) -> bool:
        """Handle what a failed server answers too, and return whether the message was of this kind."""
        match message:
            case StateRequest(request):
                resolve_state(request, self.part, self.error)
            case ProcessRequest(rank, MessageKind.STATE):
                self.outbox.send_state(rank, has_failed=self.error is not None)
            case ProcessRequest(rank, MessageKind.CLOSE):
                self.open_ranks.discard(rank)
            case LostPeer(rank, error):
                self.open_ranks.discard(rank)
                self._fail(error)
            case _:
                return False
        return True

    def _take(self, message: ServerMessage) -> None:
        """Take in a message, and decide what follows if the order is decided here."""
        order = self.order
        match message:
            case WorkerRequest(pushed=PushedPart() as pushed) if self.error is not None:
                pushed.release()
            case _ if self.error is not None:
                pass
            case LapStart():
                self.lap = message
                if order is not None:
                    self._announce(order.begin_lap(message.first_ticket, message.end_ticket))
            case WorkerRequest(worker, MessageKind.PUSH, int(ticket), PushedPart() as pushed):
                self.pushed[ticket] = pushed
                if order is not None:  # a worker pulls after each push
                    self._announce([*order.on_push(worker, ticket), *order.on_pull(worker)])
            case WorkerRequest(worker, MessageKind.PULL) if order is not None:
                self._announce(order.on_pull(worker))
            case PeerEvents(events):
                self.events.extend(events)
            case PeerNorms() if self.norms is not None:
                self.norms.add(message)
            case _:
                raise RuntimeError(f"a server cannot take {message!r}")

    def _announce(self, events: list[StoreEvent]) -> None:
        if events and self.followers is not None:
            self.followers.send_all(encode_events(events))
        self.events.extend(events)

    def _run_events(self) -> None:
        """Do what can be done already, in the total order."""
        while self.events and self.error is None:
            event = self.events[0]
            if not isinstance(event, Update):
                self.outbox.send_weights(event)
            elif not self._update(event):
                return
            self.events.popleft()

    def _update(self, update: Update) -> bool:
        """Take a step along what was pushed; return False if something is still missing."""
        tickets = [push.ticket for push in update.pushes]
        lap = self.lap
        if lap is None or max(tickets) >= lap.end_ticket or not all(ticket in self.pushed for ticket in tickets):
            return False
        if self.norms is None or not self.norms.is_measured:
            self.outbox.wait_before_update()
            values = [self.pushed[ticket].buffer.values for ticket in tickets]
            self.part.sum_gradients(values, len(tickets) if self.averages else 1)
        if self.norms is not None and not self.norms.clip(self.part):
            return False
        self.part.update(lap.lr_of_update(update))
        for ticket in tickets:
            self.pushed.pop(ticket).release()
        return True

    def _fail(self, error: BaseException) -> None:
        """Tell all workers, and free the memory that further requests are received in."""
        if self.error is None:
            self.error = error
            self.outbox.fail(error)
        for pushed in self.pushed.values():
            pushed.release()
        self.pushed.clear()
