"""Time messages between two workers, on each level of the network that the workers use."""

import statistics
from collections.abc import Sequence
from itertools import pairwise

import torch

from equipoise.planning.exchanges.link_report import LinkTiming, NetworkLevel
from equipoise.training.comm_benchmark import send_and_return, time_rounds

SMALL_BYTES, LARGE_BYTES = 1 << 10, 1 << 22  # a message of delay alone, and one of which nearly all is its bytes
MIN_ROUND_TRIPS, MAX_ROUND_TRIPS = 3, 100
MAX_PAIRS = 8  # pairs of nodes that are timed: more would take the time of the sums

Pair = tuple[int, int]


def time_levels(nodes: Sequence[int], seconds: float, device: torch.device) -> tuple[LinkTiming, ...]:
    """Return the slowest link of each level, measured in about `seconds`. All workers call this."""
    pairs_by_level = {level: pairs for level, pairs in list_pairs(nodes).items() if pairs}
    part = seconds / sum(map(len, pairs_by_level.values()))
    return tuple(time_level(level, pairs, part, device) for level, pairs in pairs_by_level.items())


def list_pairs(nodes: Sequence[int]) -> dict[NetworkLevel, list[Pair]]:
    """Return the pairs of workers to time on each level: one inside each node, and one for each node and the next."""
    ranks_by_node: dict[int, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks_by_node.setdefault(node, []).append(rank)
    inside = [(ranks[0], ranks[1]) for ranks in ranks_by_node.values() if len(ranks) > 1]
    firsts = [ranks[0] for ranks in ranks_by_node.values()]
    around = [*pairwise(firsts), *([(firsts[-1], firsts[0])] if len(firsts) > 2 else [])]
    return {"within a node": inside[:MAX_PAIRS], "between nodes": around[:MAX_PAIRS]}


def time_level(level: NetworkLevel, pairs: Sequence[Pair], seconds: float, device: torch.device) -> LinkTiming:
    """Return the longest delay and the lowest rate of pairs of workers, each timed for about `seconds`."""
    delays, rates = [], []
    for pair in pairs:
        small, large = (time_message(pair, size, seconds / 2, device) for size in (SMALL_BYTES, LARGE_BYTES))
        delays.append(small)
        rates.append((LARGE_BYTES - SMALL_BYTES) / max(large - small, large / 2))  # noise may hide the bytes' time
    return LinkTiming(level=level, pairs=len(pairs), delay_seconds=max(delays), bytes_a_second=min(rates))


def time_message(pair: Pair, size: int, seconds: float, device: torch.device) -> float:
    """Return half the median round trip of a message of `size` bytes between two workers."""
    values = torch.zeros(size // 4, device=device)

    def round_trip() -> None:
        send_and_return(values, *pair)

    first = max(time_rounds(round_trip, 2, device))
    rounds = int(min(max(seconds / first, MIN_ROUND_TRIPS), MAX_ROUND_TRIPS))
    return statistics.median(time_rounds(round_trip, rounds, device)) / 2
