"""State of the optimizer, of which each server has a part."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future

import torch
from safetensors.torch import load
from torch import Tensor

from equipoise.parameter_store.part_buffer import MessageKind, build_header
from equipoise.parameter_store.servers.reply_outbox import FAILED_STATE
from equipoise.parameter_store.servers.server import Server
from equipoise.parameter_store.servers.server_messages import StateRequest
from equipoise.parameter_store.store_channel import MESSAGE_TIMEOUT, MessageTag, StoreChannel


def collect_optimizer_state(
    channel: StoreChannel, server_ranks: Sequence[int], own_server: Server | None
) -> dict[str, Tensor]:
    """Return the state of all servers, as one optimizer of all keys has it.

    Servers answer any process by themselves, also if no other process asks; between laps only.
    """
    future: Future[dict[str, Tensor]] = Future()
    if own_server is not None:
        own_server.inbox.put(StateRequest(future))
    remote = [rank for rank in server_ranks if rank != channel.rank]
    for rank in remote:
        channel.send_last(build_header(MessageKind.STATE), rank, MessageTag.TO_SERVER)
    merged: dict[str, Tensor] = {}
    for rank in remote:
        merged |= receive_state(channel, rank)
    if own_server is not None:
        merged |= future.result(MESSAGE_TIMEOUT.total_seconds())
    return merged


def receive_state(channel: StoreChannel, rank: int) -> Mapping[str, Tensor]:
    """Receive the state of one server."""
    size = torch.zeros(1, dtype=torch.int64)
    channel.receive(size, rank, MessageTag.STATE).wait()
    if int(size) == FAILED_STATE:
        raise RuntimeError(f"the parameter server beside worker {rank} has failed; its process says why")
    payload = torch.zeros(int(size), dtype=torch.uint8)
    channel.receive(payload, rank, MessageTag.STATE).wait()
    state: dict[str, Tensor] = load(payload.numpy().tobytes())
    return state
