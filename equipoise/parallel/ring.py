"""Sum around a ring: each worker sends to the next, and every part goes once around to be summed and once to be known.

2 (p - 1) rounds, in which each worker sends 2 (p - 1) / p of the tensor, the least that is possible (P. Patarasuk and
X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).
"""

from collections.abc import Sequence

from equipoise.parallel.schedule import Message, Round, split_evenly


def ring_rounds(rank: int, ranks: int, count: int) -> list[Round]:
    """Return the rounds of worker `rank` of a ring through all workers."""
    bounds, ring = split_evenly(0, count, ranks), range(ranks)
    return [*ring_reduce_rounds(rank, ring, bounds), *ring_gather_rounds(rank, ring, bounds)]


def ring_reduce_rounds(position: int, ring: Sequence[int], bounds: Sequence[int]) -> list[Round]:
    """Return rounds after which the worker at `position` of a ring of ranks holds the sum of part `position` + 1."""
    return [ring_round(position, ring, bounds, position - step, adds=True) for step in range(len(ring) - 1)]


def ring_gather_rounds(position: int, ring: Sequence[int], bounds: Sequence[int]) -> list[Round]:
    """Return the rounds that give each part to all workers, from the one that holds its sum."""
    return [ring_round(position, ring, bounds, position - step + 1, adds=False) for step in range(len(ring) - 1)]


def ring_round(position: int, ring: Sequence[int], bounds: Sequence[int], part: int, adds: bool) -> Round:
    """Return the round in which a worker sends `part` to the next worker and gets the part before it."""
    size = len(ring)
    sent, received = part % size, (part - 1) % size
    return Round(
        sends=[Message(ring[(position + 1) % size], bounds[sent], bounds[sent + 1])],
        receives=[Message(ring[(position - 1) % size], bounds[received], bounds[received + 1])],
        adds=adds,
    )
