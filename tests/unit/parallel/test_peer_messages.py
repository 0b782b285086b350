"""What each worker has for each other one arrives, whatever the sizes, in all workers and in some of them."""

import pytest
import torch
import torch.distributed as dist

from equipoise.parallel.peer_messages import exchange_with_peers
from tests.support.gloo import run_with_gloo


def message(sender, receiver, scale):
    """Return what a worker has for another one: nothing if their ranks add up to a multiple of five."""
    return torch.full((scale * ((sender + receiver) % 5),), float(10 * sender + receiver))


def exchange_in_group(ranks, scale):
    group = dist.new_group(ranks)
    if dist.get_rank() not in ranks:
        return None
    rank = dist.get_rank(group)
    places = range(len(ranks))
    received = [torch.full_like(message(peer, rank, scale), -1.0) for peer in places]
    for _ in range(2):  # messages of two exchanges in a row do not mix
        exchange_with_peers([message(rank, peer, scale) for peer in places], received, group)
    return [tensor.tolist() for tensor in received]


@pytest.mark.parametrize(("ranks", "scale"), [([0, 1, 2, 3], 1), ([0, 1, 2, 3], 200_000), ([1, 3], 7), ([2], 3)])
def test_each_worker_gets_what_the_others_have_for_it(tmp_path, ranks, scale):
    for rank, received in enumerate(run_with_gloo(4, tmp_path, exchange_in_group, ranks, scale)):
        if rank not in ranks:
            assert received is None
            continue
        own = ranks.index(rank)
        for peer, values in enumerate(received):
            expected = message(peer, own, scale)
            assert values == (torch.full_like(expected, -1.0) if peer == own else expected).tolist()
