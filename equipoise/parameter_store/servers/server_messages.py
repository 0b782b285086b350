"""What reaches a server: requests of workers, and messages of other servers, as one queue of plain values."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from equipoise.parameter_store.order import Push, Reply, StoreEvent, Update
from equipoise.parameter_store.part_buffer import HEADER_WORDS, MessageKind, PartBuffer


class PushedPart(NamedTuple):
    """Gradient of one part as a worker pushed it, in memory that returns to its owner once it is applied."""

    buffer: PartBuffer
    owner: "SimpleQueue[PartBuffer] | None"

    def release(self) -> None:
        """Let the memory receive another push."""
        if self.owner is not None:
            self.owner.put(self.buffer)


class ProcessRequest(NamedTuple):
    """Message that any process may send: for the state of the optimizer, or that nothing follows."""

    rank: int
    kind: int


class WorkerRequest(NamedTuple):
    """Push or pull of one of the workers."""

    worker: int
    kind: int
    ticket: int | None = None
    pushed: PushedPart | None = None


class StateRequest(NamedTuple):
    """Request of this process for the state of the optimizer."""

    state: "Future[dict[str, Tensor]]"


class LapStart(NamedTuple):
    """Start of a lap: its tickets, and the learning rate of each of its updates."""

    first_ticket: int
    end_ticket: int
    lr_of_update: Callable[[Update], float]


class PeerEvents(NamedTuple):
    """Events that the server which decides the order has sent."""

    events: list[StoreEvent]


class PeerNorms(NamedTuple):
    """Norms of the gradients that another server sums in an update."""

    server: int
    update: int
    """number of the update since the start of the store"""
    norms: Tensor


class LostPeer(NamedTuple):
    """Failure to receive from another process, such as one that has died."""

    rank: int
    error: BaseException


ServerMessage: TypeAlias = WorkerRequest | ProcessRequest | StateRequest | LapStart | PeerEvents | PeerNorms | LostPeer
Inbox: TypeAlias = "SimpleQueue[ServerMessage]"

UPDATE_WORD, REPLY_WORD = 1, 2


def encode_events(events: Sequence[StoreEvent]) -> Tensor:
    """Encode events as a message to another server."""
    words = [int(MessageKind.EVENTS), len(events), *[0] * (HEADER_WORDS - 2)]
    for event in events:
        if isinstance(event, Update):
            words += [UPDATE_WORD, len(event.pushes), *(number for push in event.pushes for number in push)]
        else:
            words += [REPLY_WORD, event.worker, -1 if event.ticket is None else event.ticket, event.version]
    return torch.tensor(words)


def decode_events(words: Sequence[int]) -> list[StoreEvent]:
    """Decode a message of `encode_events`."""
    events: list[StoreEvent] = []
    place = HEADER_WORDS
    for _ in range(words[1]):
        if words[place] == UPDATE_WORD:
            end = place + 2 + 3 * words[place + 1]
            events.append(Update(tuple(Push(*words[start : start + 3]) for start in range(place + 2, end, 3))))
            place = end
        else:
            worker, ticket, version = words[place + 1 : place + 4]
            events.append(Reply(worker, None if ticket < 0 else ticket, version))
            place += 4
    return events


def encode_norms(server: int, update: int, norms: Tensor) -> Tensor:
    """Encode the norms of a server's gradients as a message to another server."""
    header = torch.tensor([int(MessageKind.NORMS), len(norms), server, update, *[0] * (HEADER_WORDS - 4)])
    return torch.cat([header, norms.double().view(torch.int64)])


def decode_peer_message(message: Tensor) -> PeerEvents | PeerNorms:
    """Decode a message of another server."""
    if int(message[0]) == MessageKind.EVENTS:
        return PeerEvents(decode_events(message.tolist()))
    count, server, update = (int(word) for word in message[1:4])
    norms = message[HEADER_WORDS : HEADER_WORDS + count].clone().view(torch.float64)
    return PeerNorms(server, update, norms)
