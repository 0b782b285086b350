"""Sum inside each node first, so that only a part per worker crosses the slower links between nodes.

With g workers on each of N nodes: rings inside the nodes leave each worker the sum of a g-th of the tensor over its
node, rings of the workers with the same place on their nodes sum these parts, and the rings inside the nodes spread
them.
"""

from equipoise.parallel.ring import ring_gather_rounds, ring_reduce_rounds
from equipoise.parallel.schedule import Round, split_evenly


def two_level_rounds(rank: int, ranks: int, count: int, group_size: int) -> list[Round]:
    """Return the rounds of a worker; ranks on a node follow each other, and `group_size` divides their number."""
    place = rank % group_size
    node = range(rank - place, rank - place + group_size)
    across = range(place, ranks, group_size)
    bounds = split_evenly(0, count, group_size)
    part = (place + 1) % group_size  # whose sum the ring inside the node leaves here
    part_bounds = split_evenly(bounds[part], bounds[part + 1], len(across))
    return [
        *ring_reduce_rounds(place, node, bounds),
        *ring_reduce_rounds(rank // group_size, across, part_bounds),
        *ring_gather_rounds(rank // group_size, across, part_bounds),
        *ring_gather_rounds(place, node, bounds),
    ]
