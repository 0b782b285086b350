"""Sum where the parts meet: on every worker, on one of them, or each part on a worker of its own."""

from equipoise.parallel.schedule import Message, Round, list_next_peers, split_evenly


def direct_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return the one round in which each worker sends its tensor to all others and sums all of them."""
    everything = [Message(peer, 0, count) for peer in list_next_peers(rank, ranks)]
    return [Round(sends=everything, receives=everything, adds=True)]


def root_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return two rounds: all hand their tensor to worker 0, which sums them and sends the sum to all."""
    peers = range(1, ranks) if rank == 0 else [0]
    everything = [Message(peer, 0, count) for peer in peers]
    if rank == 0:
        return [Round(receives=everything, adds=True), Round(sends=everything)]
    return [Round(sends=everything), Round(receives=everything)]


def sharded_root_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return two rounds in which each worker is the root of its own part; it sends 2 (p - 1) / p of the tensor."""
    bounds = split_evenly(0, count, ranks)
    peers = list_next_peers(rank, ranks)
    own_part = [Message(peer, bounds[rank], bounds[rank + 1]) for peer in peers]
    other_parts = [Message(peer, bounds[peer], bounds[peer + 1]) for peer in peers]
    return [Round(sends=other_parts, receives=own_part, adds=True), Round(sends=own_part, receives=other_parts)]
