"""Parameter store of a run: in each process the client of its worker, and in some a server with a part of the weights.

The first K worker processes have a server each, a thread beside the worker. Messages go over a gloo group of their own,
so that the collectives of training stay as they are, also where the model is on a GPU: the store is in main memory.
A worker that dies ends the store: its connections break, and servers tell all workers that wait.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from torch import Tensor, nn

from equipoise.config import TrainConfig
from equipoise.parameter_store.lockstep_order import PushOrder
from equipoise.parameter_store.optimizer_state import collect_optimizer_state
from equipoise.parameter_store.part_buffer import HEADER_WORDS, MessageKind, PartBuffer, build_header
from equipoise.parameter_store.partition import partition_keys
from equipoise.parameter_store.servers.receivers import (
    BufferPool,
    ServerPeers,
    receive_from_process,
    receive_from_server,
    receive_from_worker,
    start_thread,
)
from equipoise.parameter_store.servers.reply_outbox import ReplyOutbox
from equipoise.parameter_store.servers.server import Server
from equipoise.parameter_store.servers.server_messages import LapStart, ProcessRequest
from equipoise.parameter_store.servers.server_part import ServerPart
from equipoise.parameter_store.servers.shared_norms import SharedNorms
from equipoise.parameter_store.store_channel import MessageTag, StoreChannel
from equipoise.parameter_store.store_client import StoreClient, StoreLayout


class ParameterStore:
    """Client and perhaps server of this process; all processes of the run build theirs at the same time."""

    def __init__(
        self,
        config: TrainConfig,
        parameters: Mapping[str, nn.Parameter],
        lr_scales: Mapping[str, float],
        *,
        worker_ranks: Sequence[int],
        servers: int,
        build_order: Callable[[], PushOrder],
        is_asynchronous: bool,
    ) -> None:
        """Open a store of the model's `parameters` for the workers of some ranks, the first of which have servers.

        If it is asynchronous, the first server decides the order of all, an update takes the mean of what was pushed,
        and each worker clips its own gradient unless no staleness is allowed. Otherwise each server knows the order,
        and an update takes the sum.
        """
        self.config, self.lr_scales, self.is_asynchronous = config, lr_scales, is_asynchronous
        self.channel = StoreChannel()
        parts = partition_keys({name: parameter.nbytes for name, parameter in parameters.items()}, servers)
        self.layout = StoreLayout(dict(parameters), parts, [*worker_ranks], [*worker_ranks[:servers]])
        self.server: Server | None = None
        self.client: StoreClient | None = None
        """client of this process; None where another worker of its node pushes for it"""
        if self.channel.rank in self.layout.server_ranks:
            self.server = self._start_server(self.layout.server_ranks.index(self.channel.rank), build_order)
        if self.channel.rank in self.layout.worker_ranks:
            self.client = StoreClient(self.channel, self.layout, self.server, is_asynchronous)
        finalizer = weakref.finalize(self, close_store, self.channel, self.layout.server_ranks, self.server)
        finalizer.atexit = False  # the other processes notice the end of this one

    @property
    def sent_bytes(self) -> int:
        """Bytes of weights and gradients that this process has sent so far."""
        server_bytes = self.server.outbox.sent_bytes if self.server else 0
        return server_bytes + (self.client.sent_bytes if self.client else 0)

    def begin_lap(self, lap: LapStart) -> None:
        """Tell the server of this process, if it has one, which tickets follow; before they are pulled or pushed."""
        if self.server is not None:
            self.server.inbox.put(lap)

    def load(self, optimizer_state: Mapping[str, Tensor]) -> None:
        """Give the server of this process the weights of the model and its part of an optimizer's state."""
        if self.server is not None:
            self.server.part.load(self.layout.parameters, optimizer_state)

    def collect_optimizer_state(self) -> dict[str, Tensor]:
        """Return the state of the optimizer of all servers, as one of all keys has it; between laps only."""
        return collect_optimizer_state(self.channel, self.layout.server_ranks, self.server)

    def _start_server(self, index: int, build_order: Callable[[], PushOrder]) -> Server:
        own = {key: self.layout.parameters[key] for key in self.layout.parts[index]}
        part = ServerPart(self.config, own, self.lr_scales)
        outbox = ReplyOutbox(self.channel, part, self.layout.worker_ranks, copies=self.is_asynchronous)
        others = [rank for rank in self.layout.server_ranks if rank != self.channel.rank]
        decides = not self.is_asynchronous or index == 0
        leads = self.is_asynchronous and index == 0 and others
        server = Server(
            part,
            outbox,
            build_order() if decides else None,
            ServerPeers(self.channel, others) if leads else None,
            self._share_norms(index, others),
            averages=self.is_asynchronous,
        )
        self._start_receivers(server, index, others)
        start_thread(server.run)
        return server

    def _share_norms(self, index: int, others: list[int]) -> SharedNorms | None:
        if self.config.sync_method.staleness or not self.config.clip_norm:
            return None
        places = {name: place for place, name in enumerate(self.layout.parameters)}
        key_places = [[places[key] for key in part] for part in self.layout.parts]
        return SharedNorms(index, key_places, ServerPeers(self.channel, others))

    def _start_receivers(self, server: Server, index: int, others: list[int]) -> None:
        for rank in range(self.channel.processes):
            if rank != self.channel.rank and rank not in self.layout.worker_ranks:
                start_thread(receive_from_process, self.channel, rank, server.inbox)
            elif rank != self.channel.rank:
                # without updates out of step, a worker pushes again only after its last push is applied
                limit = None if self.is_asynchronous else 1
                pool = BufferPool(partial(PartBuffer, list(server.part.parameters)), limit)
                worker = self.layout.worker_ranks.index(rank)
                start_thread(receive_from_worker, self.channel, rank, worker, pool, server.inbox)
        senders = others if server.norms is not None else []
        if self.is_asynchronous and index > 0 and not senders:
            senders = self.layout.server_ranks[:1]  # the one that decides the order
        words = HEADER_WORDS + max(
            len(self.layout.parameters), 2 + 3 * self.config.workers + 4 * len(self.layout.worker_ranks)
        )
        for rank in senders:
            start_thread(receive_from_server, self.channel, rank, words, server.inbox)


def close_store(channel: StoreChannel, server_ranks: Sequence[int], own_server: Server | None) -> None:
    """Tell all servers that nothing follows from this process, so that their threads end."""
    for rank in server_ranks:
        if rank != channel.rank:
            with suppress(RuntimeError):  # it may be gone
                channel.send_last(build_header(MessageKind.CLOSE), rank, MessageTag.TO_SERVER)
    if own_server is not None:
        own_server.inbox.put(ProcessRequest(channel.rank, MessageKind.CLOSE))
