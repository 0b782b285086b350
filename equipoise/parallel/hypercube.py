"""Sum between partners whose distance doubles or halves: log2 p rounds each way instead of p - 1.

R. Thakur, R. Rabenseifner and W. Gropp, Optimization of collective communication operations in MPICH, 2005.
"""

from equipoise.parallel.schedule import Message, Round, split_evenly


def doubling_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return rounds in which partners swap all they have: log2 p rounds of the whole tensor; p is a power of two."""
    distances = [1 << level for level in range(ranks.bit_length() - 1)]
    swaps = [[Message(rank ^ distance, 0, count)] for distance in distances]
    return [Round(sends=swap, receives=swap, adds=True) for swap in swaps]


def halving_doubling_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return rounds that halve what a worker sums, then double what it knows; p is a power of two.

    2 log2 p rounds, in which each worker sends 2 (p - 1) / p of the tensor.
    """
    bounds = split_evenly(0, count, ranks)
    first, last = 0, ranks  # parts that this worker still sums
    reduce_rounds, gather_rounds = [], []
    while last - first > 1:
        middle = (first + last) // 2
        partner = rank ^ (middle - first)
        lower, upper = (first, middle), (middle, last)
        own, other = (lower, upper) if rank < partner else (upper, lower)
        own_part, other_part = ([Message(partner, bounds[part[0]], bounds[part[1]])] for part in (own, other))
        reduce_rounds.append(Round(sends=other_part, receives=own_part, adds=True))
        gather_rounds.append(Round(sends=own_part, receives=other_part))
        first, last = own
    return reduce_rounds + gather_rounds[::-1]


def binary_block_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return rounds of halving and doubling for any number of workers.

    The workers beyond the largest power of two hand in their tensor first and get the sum at the end.
    """
    block = 1 << (ranks.bit_length() - 1)
    if block == ranks:
        return halving_doubling_rounds(rank, ranks, count)
    if rank >= block:
        whole = [Message(rank - block, 0, count)]
        idle = [Round()] * (2 * (block.bit_length() - 1))
        return [Round(sends=whole), *idle, Round(receives=whole)]
    whole = [Message(rank + block, 0, count)] if rank + block < ranks else []
    return [Round(receives=whole, adds=True), *halving_doubling_rounds(rank, block, count), Round(sends=whole)]
