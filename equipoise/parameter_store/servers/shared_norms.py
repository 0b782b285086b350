"""Norms of the gradients of all keys, which servers tell each other so that each clips as one process would.

The gradient is scaled down where the norm of all of it is larger than `--clip-norm`, and each server only has a part.
Each sends the norms of its keys to the others before an update: all compute the same total from them, to the bit that
of one process, because its norm is that of the norms of parameters too.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from equipoise.parameter_store.servers.receivers import ServerPeers
from equipoise.parameter_store.servers.server_messages import PeerNorms, encode_norms
from equipoise.parameter_store.servers.server_part import ServerPart


class SharedNorms:
    """Norms of the update that comes next, of all servers."""

    def __init__(self, server: int, key_places: Sequence[Sequence[int]], peers: ServerPeers) -> None:
        """Share the norms of server number `server`; `key_places` are the places of each one's keys in the model."""
        self.server, self.key_places, self.peers = server, key_places, peers
        self.num_updates = 0
        self.norms: dict[tuple[int, int], Tensor] = {}  # by update and server; another server may be one ahead
        self.is_measured = False
        """whether the gradients of the next update are summed, and their own norms sent"""

    def add(self, message: PeerNorms) -> None:
        """Take the norms of another server."""
        self.norms[message.update, message.server] = message.norms

    def clip(self, part: ServerPart) -> bool:
        """Scale the gradients of a part down if they are too large; return False until all norms have come."""
        if not self.is_measured:
            norms = part.measure_norms()
            self.norms[self.num_updates, self.server] = norms.double()
            self.peers.send_all(encode_norms(self.server, self.num_updates, norms))
            self.is_measured = True
        keys = [(self.num_updates, server) for server in range(len(self.key_places))]
        if not all(key in self.norms for key in keys):
            return False
        total = torch.zeros(sum(map(len, self.key_places)), dtype=torch.float64)
        for key, places in zip(keys, self.key_places, strict=True):
            total[list(places)] = self.norms.pop(key)
        part.clip_gradients(total.to(part.gradients.values.dtype))
        self.num_updates += 1
        self.is_measured = False
        return True
