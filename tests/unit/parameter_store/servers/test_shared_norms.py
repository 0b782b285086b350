"""Norms of a gradient whose keys are on several servers: each scales its part by the norm of the whole."""

import pytest
import torch
from torch import nn

from equipoise.config import TrainConfig
from equipoise.parameter_store.servers.receivers import ServerPeers
from equipoise.parameter_store.servers.server_messages import PeerNorms
from equipoise.parameter_store.servers.server_part import ServerPart
from equipoise.parameter_store.servers.shared_norms import SharedNorms

CONFIG = TrainConfig(workload="digits", optimizer="sgd", lr=0.1, clip_norm=1.0)


def test_part_is_clipped_once_the_norms_of_all_servers_are_there():
    part = ServerPart(CONFIG, {"weight": nn.Parameter(torch.zeros(2))}, {})
    norms = SharedNorms(0, [[1], [0]], ServerPeers(None, []))
    for update, other in enumerate((12.0, 84.0)):
        part.sum_gradients([torch.tensor([3.0, 4.0])], 1)
        assert not norms.clip(part) and not norms.clip(part)
        assert part.gradients.values.tolist() == [3, 4]
        norms.add(PeerNorms(1, update, torch.tensor([other], dtype=torch.float64)))
        assert norms.clip(part)
        whole = (3**2 + 4**2 + other**2) ** 0.5
        assert part.gradients.values.tolist() == pytest.approx([3 / whole, 4 / whole], rel=1e-4)
    assert not norms.norms and norms.num_updates == 2
