"""Which worker updates which weights, and what it costs to send them to the others."""

from collections.abc import Mapping, Sequence

from equipoise.parameter_store.partition import partition_keys
from equipoise.training.gradient_sync import SumTraffic


def assign_owners(weight_bytes: Mapping[str, int], workers: int) -> list[list[str]]:
    """Return the weights that each worker updates, with about equal bytes; none where there are more workers."""
    parts = partition_keys(weight_bytes, min(workers, len(weight_bytes)))
    return parts + [[] for _ in range(workers - len(parts))]


def gather_traffic(part_bytes: Sequence[int]) -> SumTraffic:
    """Return what the worker sends that sends most, when each worker sends its part to all others at once."""
    return SumTraffic((len(part_bytes) - 1) * max(part_bytes), 1)
