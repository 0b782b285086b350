"""Which worker updates which weights, and what it costs to send them to the others.

gloo sends from one worker to all others along a tree: with p workers, numbered from the one that sends, worker v sends
to v + 2^i for all 2^i > v, as far as there are so many.
"""

from collections.abc import Mapping, Sequence

from equipoise.parameter_store.partition import partition_keys
from equipoise.training.gradient_sync import SumTraffic


def assign_owners(weight_bytes: Mapping[str, int], workers: int) -> list[list[str]]:
    """Return the weights that each worker updates, with about equal bytes; none where there are more workers."""
    parts = partition_keys(weight_bytes, min(workers, len(weight_bytes)))
    return parts + [[] for _ in range(workers - len(parts))]


def count_receivers(place: int, workers: int) -> int:
    """Return how many others a worker sends to that is so many places after the one that a tree begins at."""
    return sum(place < 1 << level and place + (1 << level) < workers for level in range(workers.bit_length()))


def broadcast_traffic(part_bytes: Sequence[int]) -> SumTraffic:
    """Return what the worker sends that sends most, when each worker sends its part to all others."""
    workers = len(part_bytes)
    sent = [
        sum(count_receivers((rank - owner) % workers, workers) * part_bytes[owner] for owner in range(workers))
        for rank in range(workers)
    ]
    return SumTraffic(max(sent), (workers - 1).bit_length())
