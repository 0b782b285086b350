"""Sum along a binomial tree to worker 0, and back: 2 ceil(log2 p) rounds of the whole tensor."""

from equipoise.parallel.schedule import Message, Round


def tree_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return the rounds of a worker: it adds what its children hand in, hands in, and passes the sum back on."""
    reduce_rounds, gather_rounds = [], []
    for level in range((ranks - 1).bit_length()):
        distance = 1 << level
        to_parent, from_child = [], []
        if rank % (2 * distance) == distance:
            to_parent = [Message(rank - distance, 0, count)]
        elif rank % (2 * distance) == 0 and rank + distance < ranks:
            from_child = [Message(rank + distance, 0, count)]
        reduce_rounds.append(Round(sends=to_parent, receives=from_child, adds=True))
        gather_rounds.append(Round(sends=from_child, receives=to_parent))
    return reduce_rounds + gather_rounds[::-1]
