"""Closed forms of a push and a pull of all workers, where the first K of p workers host servers with a part each.

A worker pushes to each server the gradient of its part, and pulls the weights of that part when the server has updated
them. What a worker keeps for its own server passes no link. The busiest link is that of the server with the largest
part: p - 1 workers push it and pull it. One server is the all-reduce algorithm `root`, equal parts on all workers are
`sharded-root`.

Workers of a node share its link. There a small part is pulled while a larger one is still pushed, because a link passes
bytes both ways at once: with pushes that share the link evenly, parts m_1 <= m_2 <= ... of one node take the time of

    max over i of  (sum over j of min(m_j, m_i)) + (m_i + m_(i+1) + ...)

bytes for each worker on another node: part i has arrived after the first sum, and from then on at least the second
remains to be sent back. Equal parts gain nothing: twice their sum.
"""

import heapq
from collections.abc import Sequence
from operator import itemgetter

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.planning.exchanges.exchange_time import AllReduceCost, LevelCost

SHARE_TOLERANCE = 1e-6


def server_cost(
    workers: int,
    servers: int,
    gradient_bytes: float,
    nodes: int = 1,
    *,
    part_shares: Sequence[float] | None = None,
    is_two_level: bool = False,
) -> AllReduceCost:
    """Return the cost of a push and a pull of a gradient of so many bytes, with 0 servers for one on each worker.

    `part_shares` are the parts of the servers over all of the gradient; without them parts are equal. In two levels
    the workers of a node sum first, servers are on the first workers of nodes, and 0 stands for one on each node.
    """
    if not 1 <= nodes <= workers or workers % (nodes if is_two_level else 1):
        raise EquipoiseError(
            "option-range",
            f"cannot estimate a push of {pluralize(workers, 'worker')} on {pluralize(nodes, 'node')}: each node needs"
            f" {'as many workers' if is_two_level else 'a worker'}",
        )
    hosts = nodes if is_two_level else workers
    shares = require_shares(part_shares, count_servers(servers, hosts))
    if workers == 1:
        return AllReduceCost(0.0, 0.0, LevelCost(), LevelCost())
    mean = 2 * (workers - 1) / workers * gradient_bytes
    links = nodes if nodes > 1 else hosts
    level = LevelCost(2, busiest_link_share(shares, hosts, links) * gradient_bytes) if hosts > 1 else LevelCost()
    largest = (1 + (hosts - 2) * max(shares)) * gradient_bytes if hosts > 1 else 0.0
    if not is_two_level:
        return AllReduceCost(mean, largest, *((level, LevelCost()) if nodes == 1 else (LevelCost(), level)))
    inside = (workers // nodes - 1) * gradient_bytes  # what the first worker of a node gets, and what it hands on
    local = LevelCost(2, 2 * inside) if inside else LevelCost()
    return AllReduceCost(mean, max(largest + inside, gradient_bytes if inside else 0.0), local, level)


def busiest_link_share(part_shares: Sequence[float], workers: int, links: int) -> float:
    """Return what passes the busiest of so many links one after another, over all of the gradient.

    Workers are spread over the links in order, as evenly as can be; servers are on the first workers.
    """
    busiest, first = 0.0, 0
    for link in range(links):
        own = workers // links + (link < workers % links)
        parts = part_shares[first : first + own]
        busiest = max(busiest, (workers - own) * push_and_pull_share(parts))
        first += own
    return busiest


def push_and_pull_share(part_shares: Sequence[float]) -> float:
    """Return how much of the gradient passes a link one after another for each worker that pushes and pulls its parts.

    A link passes bytes both ways at once: small parts are pulled while larger ones are still pushed.
    """
    return max(
        (
            sum(min(other, part) for other in part_shares) + sum(other for other in part_shares if other >= part)
            for part in part_shares
        ),
        default=0.0,
    )


def count_servers(servers: int, hosts: int) -> int:
    """Return the number of servers on so many workers or nodes that can host one; 0 stands for one on each."""
    if not 0 <= servers <= hosts:
        raise EquipoiseError(
            "option-range",
            f"cannot estimate {servers} servers on {hosts} workers: at most one is on each",
            "give fewer servers, or 0 for one on each",
        )
    return servers or hosts


def require_shares(part_shares: Sequence[float] | None, servers: int) -> Sequence[float]:
    """Return the parts of so many servers, which are equal if none are given; refuse impossible ones."""
    if part_shares is None:
        return [1 / servers] * servers
    if len(part_shares) != servers or min(part_shares) < 0 or abs(sum(part_shares) - 1) > SHARE_TOLERANCE:
        raise EquipoiseError(
            "option-range",
            f"cannot estimate {pluralize(servers, 'server')} with {pluralize(len(part_shares), 'part')} that add up to"
            f" {sum(part_shares):g} of the gradient: each has one, and all of them are the gradient",
        )
    return part_shares


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


def find_part_shares(key_bytes: Sequence[float], servers: int) -> list[float] | None:
    """Return the part of each server over all bytes, largest first; None where the bytes of the keys are not known.

    A key is a whole parameter. Keys are given out by their bytes, the largest first, each to the server that has least.
    """
    if not sum(key_bytes):
        return None
    parts = [(0.0, server) for server in range(servers)]
    for size in sorted(key_bytes, reverse=True):
        heapq.heapreplace(parts, (parts[0][0] + size, parts[0][1]))
    return [part / sum(key_bytes) for part, _ in sorted(parts, key=itemgetter(1))]
