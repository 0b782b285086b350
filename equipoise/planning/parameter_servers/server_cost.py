"""Closed forms of a push and a pull of all workers, where the first K of p workers host servers with a part each.

A worker pushes to each server the gradient of its part, and pulls the weights of that part when the server has updated
them. What a worker keeps for its own server passes no link. The busiest link is that of the server with the largest
part: p - 1 workers push it and pull it. One server is the all-reduce algorithm `root`, equal parts on all workers are
`sharded-root`.
"""

import heapq
from collections.abc import Sequence

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.planning.exchanges.exchange_time import AllReduceCost, LevelCost


def server_cost(
    workers: int,
    servers: int,
    gradient_bytes: float,
    nodes: int = 1,
    *,
    largest_share: float | None = None,
    is_two_level: bool = False,
) -> AllReduceCost:
    """Return the cost of a push and a pull of a gradient of so many bytes, with 0 servers for one on each worker.

    `largest_share` is the largest part of a server over all of the gradient; without it parts are equal. In two levels
    the workers of a node sum first, servers are on the first workers of nodes, and 0 stands for one on each node.
    """
    if not 1 <= nodes <= workers or workers % (nodes if is_two_level else 1):
        raise EquipoiseError(
            "option-range",
            f"cannot estimate a push of {pluralize(workers, 'worker')} on {pluralize(nodes, 'node')}: each node needs"
            f" {'as many workers' if is_two_level else 'a worker'}",
        )
    hosts = nodes if is_two_level else workers
    share = require_share(largest_share, count_servers(servers, hosts))
    if workers == 1:
        return AllReduceCost(0.0, 0.0, LevelCost(), LevelCost())
    mean = 2 * (workers - 1) / workers * gradient_bytes
    level = LevelCost(2, 2 * (hosts - 1) * share * gradient_bytes) if hosts > 1 else LevelCost()
    largest = (1 + (hosts - 2) * share) * gradient_bytes if hosts > 1 else 0.0
    if not is_two_level:
        return AllReduceCost(mean, largest, *((level, LevelCost()) if nodes == 1 else (LevelCost(), level)))
    inside = (workers // nodes - 1) * gradient_bytes  # what the first worker of a node gets, and what it hands on
    local = LevelCost(2, 2 * inside) if inside else LevelCost()
    return AllReduceCost(mean, max(largest + inside, gradient_bytes if inside else 0.0), local, level)


def count_servers(servers: int, hosts: int) -> int:
    """Return the number of servers on so many workers or nodes that can host one; 0 stands for one on each."""
    if not 0 <= servers <= hosts:
        raise EquipoiseError(
            "option-range",
            f"cannot estimate {servers} servers on {hosts} workers: at most one is on each",
            "give fewer servers, or 0 for one on each",
        )
    return servers or hosts


def require_share(largest_share: float | None, servers: int) -> float:
    """Return the share of the largest part, which is that of equal parts if none is given; refuse an impossible one."""
    if largest_share is None:
        return 1 / servers
    if not 1 / servers <= largest_share * (1 + 1e-12) or largest_share > 1:
        raise EquipoiseError(
            "option-range",
            f"cannot estimate {pluralize(servers, 'server')} of which the largest has {largest_share:g} of the"
            f" gradient: it has from {1 / servers:g} to 1",
        )
    return largest_share


def find_largest_share(key_bytes: Sequence[float], servers: int) -> float | None:
    """Return the largest part of a server over all bytes; None where the bytes of the keys are not known.

    A key is a whole parameter. Keys are given out by their bytes, the largest first, each to the server that has least.
    """
    if not sum(key_bytes):
        return None
    parts = [0.0] * servers
    for size in sorted(key_bytes, reverse=True):
        heapq.heapreplace(parts, parts[0] + size)
    return max(parts) / sum(key_bytes)
