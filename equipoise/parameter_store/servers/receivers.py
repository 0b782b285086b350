"""Threads that receive for a server, one for each process that sends to it.

A receive from any process would not notice that one of them has died; a receive from each does, at once. The threads
end when the other process closes its store, or is gone.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue

import torch
from torch import Tensor

from equipoise.parameter_store.part_buffer import MessageKind, PartBuffer, build_header
from equipoise.parameter_store.servers.server_messages import (
    Inbox,
    LostPeer,
    ProcessRequest,
    PushedPart,
    WorkerRequest,
    decode_peer_message,
)
from equipoise.parameter_store.store_channel import IDLE_TIMEOUT, MessageTag, StoreChannel

THREAD_NAME = "parameter store"


def start_thread(run: Callable[..., None], *arguments: object) -> threading.Thread:
    """Start a thread of a store: a daemon, so that a process can end while another one does not answer."""
    thread = threading.Thread(target=run, args=arguments, name=THREAD_NAME, daemon=True)
    thread.start()
    return thread


class BufferPool:
    """Memory for the pushes of one worker; without `limit` as much as it pushes before that is applied."""

    def __init__(self, build: Callable[[], PartBuffer], limit: int | None = None) -> None:
        self.build, self.limit = build, limit
        self.free: SimpleQueue[PartBuffer] = SimpleQueue()
        self.count = 0

    def take(self) -> PartBuffer:
        """Return memory for a push; wait for it if there may be no more."""
        if self.free.empty() and self.count != self.limit:
            self.count += 1
            return self.build()
        return self.free.get()


def receive_from_worker(channel: StoreChannel, rank: int, worker: int, pool: BufferPool, inbox: Inbox) -> None:
    """Receive what a worker sends to the server of this process, until it closes its store."""
    try:
        while True:
            buffer = pool.take()
            channel.receive(buffer.message, rank, MessageTag.TO_SERVER).wait(IDLE_TIMEOUT)
            kind = buffer.kind
            if kind == MessageKind.PUSH:
                inbox.put(WorkerRequest(worker, kind, buffer.ticket, PushedPart(buffer, pool.free)))
                continue
            pool.free.put(buffer)
            inbox.put(WorkerRequest(worker, kind) if kind == MessageKind.PULL else ProcessRequest(rank, kind))
            if kind == MessageKind.CLOSE:
                return
    except BaseException as error:
        inbox.put(LostPeer(rank, error))


def receive_from_process(channel: StoreChannel, rank: int, inbox: Inbox) -> None:
    """Receive requests of a process that has no gradients for the server of this one, until it closes its store."""
    message = build_header(MessageKind.CLOSE)
    try:
        while True:
            channel.receive(message, rank, MessageTag.TO_SERVER).wait(IDLE_TIMEOUT)
            kind = int(message.view(torch.int64)[0])
            inbox.put(ProcessRequest(rank, kind))
            if kind == MessageKind.CLOSE:
                return
    except BaseException as error:
        inbox.put(LostPeer(rank, error))


def receive_from_server(channel: StoreChannel, rank: int, words: int, inbox: Inbox) -> None:
    """Receive what another server sends, in messages of at most so many words, until it closes."""
    message = torch.zeros(words, dtype=torch.int64)
    try:
        while True:
            channel.receive(message, rank, MessageTag.BETWEEN_SERVERS).wait(IDLE_TIMEOUT)
            if int(message[0]) == MessageKind.CLOSE:
                return
            inbox.put(decode_peer_message(message))
    except BaseException as error:
        inbox.put(LostPeer(rank, error))


class ServerPeers:
    """Other servers, which a server tells the order of events or the norms of its gradients."""

    def __init__(self, channel: StoreChannel, ranks: list[int]) -> None:
        self.channel, self.ranks = channel, ranks
        self.pending: list[tuple[Tensor, object]] = []  # a message stays in memory until it is sent

    def send_all(self, message: Tensor) -> None:
        """Send the same message to all other servers."""
        for _, work in self.pending:
            work.wait()  # type: ignore[attr-defined]
        self.pending = [(message, self.channel.send(message, rank, MessageTag.BETWEEN_SERVERS)) for rank in self.ranks]

    def close(self) -> None:
        """Tell all other servers that nothing follows."""
        message = torch.tensor([int(MessageKind.CLOSE)])
        for rank in self.ranks:
            self.channel.send_last(message, rank, MessageTag.BETWEEN_SERVERS)
