"""Messages between servers hold what was put into them."""

import torch

from equipoise.parameter_store.order import Push, Reply, Update
from equipoise.parameter_store.servers.server_messages import (
    PeerEvents,
    decode_peer_message,
    encode_events,
    encode_norms,
)

EVENTS = [
    Update((Push(6, 0, 0), Push(7, 2, 1))),
    Reply(0, None, 3),
    Reply(1, 1 << 40, 3),
    Update((Push(0, 0, 0),)),
]


def test_events_survive_a_message():
    for count in range(len(EVENTS) + 1):
        message = encode_events(EVENTS[:count])
        padded = torch.cat([message, torch.full((5,), 9)])  # memory that receives messages of several lengths
        assert decode_peer_message(padded) == PeerEvents(EVENTS[:count])


def test_norms_survive_a_message_to_the_bit():
    norms = torch.rand(7, dtype=torch.float64)
    received = decode_peer_message(torch.cat([encode_norms(2, 41, norms), torch.zeros(3, dtype=torch.int64)]))
    assert (received.server, received.update) == (2, 41)
    assert torch.equal(received.norms, norms)
