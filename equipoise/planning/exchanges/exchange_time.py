"""Closed forms of the sum of a gradient over workers: rounds, bytes that leave a worker, and seconds.

    seconds = rounds * alpha + serial_bytes * beta        alpha: seconds a message, beta: seconds a byte

`serial_bytes` pass the busiest link one after another. R. Thakur, R. Rabenseifner, W. Gropp: Optimization of Collective
Communication Operations in MPICH, 2005; docs/explanation/how-a-sum-travels.md has the table.
"""

from functools import cache
from typing import NamedTuple

from equipoise.errors import EquipoiseError
from equipoise.formatting import pluralize
from equipoise.registries.all_reduce_registry import ALL_REDUCE_ALGORITHMS, POWER_OF_TWO_ALGORITHMS

SEND_BUFFER_BYTES = 4 << 20  # of a connection on Linux, at most: a send ends when the rest has left


class LevelCost(NamedTuple):
    """Cost of a sum on one network level: inside the nodes, or between them."""

    rounds: int = 0
    """messages that wait for each other"""
    serial_bytes: float = 0.0
    """bytes that pass the busiest link of this level one after another"""
    overlapped_rounds: int = 0
    """of `rounds`, those whose delay passes while other bytes of the sum travel"""
    overlapped_bytes: float = 0.0
    """these bytes, for each of those rounds"""
    ready_rounds: int = 0
    """of `rounds`, those whose receivers are ready before, which takes half of a delay"""

    @property
    def delays(self) -> float:
        """Delays of all rounds, whatever overlaps with them."""
        return self.rounds - self.ready_rounds / 2

    def seconds(self, alpha: float, beta: float) -> float:
        """Return the seconds, with `alpha` seconds a message and `beta` seconds a byte."""
        overlap = self.overlapped_rounds * min(alpha, self.overlapped_bytes * beta)
        return self.delays * alpha + self.serial_bytes * beta - overlap


class AllReduceCost(NamedTuple):
    """Cost of a sum over all workers by one algorithm."""

    mean_sent_bytes: float
    """bytes that leave a worker, averaged over workers"""
    max_sent_bytes: float
    """bytes that leave the worker that sends most"""
    local: LevelCost
    """cost inside the nodes"""
    between: LevelCost
    """cost between nodes"""

    @property
    def rounds(self) -> int:
        """Messages that wait for each other, on both levels."""
        return self.local.rounds + self.between.rounds


def all_reduce_cost(algorithm: str, workers: int, gradient_bytes: float, nodes: int = 1) -> AllReduceCost:
    """Return the cost of the sum of a gradient of so many bytes over all workers of so many nodes.

    Only `two-level` tells links inside a node from those between nodes; for the others all links are of the slowest
    kind that they use: between nodes where there are several.
    """
    if algorithm not in ALL_REDUCE_ALGORITHMS:
        raise EquipoiseError(
            "option-choice",
            f"cannot estimate a sum by {algorithm[:40]!r}: no all-reduce has this name",
            f"choose one of {', '.join(ALL_REDUCE_ALGORITHMS)}",
        )
    if not 1 <= nodes <= workers:
        raise EquipoiseError(
            "option-range",
            f"cannot estimate a sum over {pluralize(workers, 'worker')} on {pluralize(nodes, 'node')}: each node needs"
            " a worker",
        )
    if gradient_bytes < 0:
        raise EquipoiseError("option-range", f"cannot estimate a sum of {gradient_bytes:g} bytes: it must not be less")
    if workers == 1:
        return AllReduceCost(0.0, 0.0, LevelCost(), LevelCost())
    if algorithm == "two-level":
        return two_level_cost(workers, gradient_bytes, nodes)
    mean, largest, level = flat_cost(algorithm, workers, gradient_bytes)
    return AllReduceCost(mean, largest, *((level, LevelCost()) if nodes == 1 else (LevelCost(), level)))


def flat_cost(algorithm: str, workers: int, size: float) -> tuple[float, float, LevelCost]:
    """Return the mean and the largest number of bytes that leave a worker, and the cost on links of one kind."""
    share = 2 * (workers - 1) / workers * size  # the least that a worker must send
    levels = (workers - 1).bit_length()
    if algorithm in POWER_OF_TWO_ALGORITHMS and workers & (workers - 1):
        raise EquipoiseError(
            "option-range",
            f"cannot estimate a sum over {workers} workers by {algorithm}: it needs 2, 4, 8, ... workers",
            "choose another number of workers, or binary-blocks",
        )
    if algorithm == "binary-blocks":
        return binary_blocks_cost(workers, size)
    if algorithm == "tree":
        return share, levels * size, LevelCost(2 * levels, tree_serial_bytes(workers, size))
    forms = {
        "ring": (share, share, LevelCost(2 * (workers - 1), share)),
        "halving-doubling": (share, share, LevelCost(2 * levels, share)),
        "doubling": (levels * size, levels * size, LevelCost(levels, levels * size)),
        "direct": ((workers - 1) * size, (workers - 1) * size, LevelCost(1, (workers - 1) * size)),
        "root": (share, (workers - 1) * size, LevelCost(2, 2 * (workers - 1) * size)),
        "sharded-root": (share, share, LevelCost(2, share)),
    }
    return forms[algorithm]


def tree_serial_bytes(workers: int, size: float) -> float:
    """Return the bytes of a sum by a tree that pass the busiest link one after another.

    On the way back a worker sends to its children one after another. The kernel buffers up to `SEND_BUFFER_BYTES` of
    a message, so that the next send begins while these still leave, and shares the link with them.
    """
    levels = (workers - 1).bit_length()
    shared = count_shared_messages(0, levels, workers)
    return 2 * levels * size + (shared - levels) * min(size, SEND_BUFFER_BYTES)


@cache
def count_shared_messages(rank: int, level: int, workers: int) -> int:
    """Return the messages that follow each other until all workers below one have the sum.

    Those to several children share its link, so that each of these waits as long as for all of them.
    """
    children = [(rank + (1 << below), below) for below in range(level) if rank + (1 << below) < workers]
    return len(children) + max((count_shared_messages(*child, workers) for child in children), default=0)


def binary_blocks_cost(workers: int, size: float) -> tuple[float, float, LevelCost]:
    """Return the cost of halving and doubling in a block of 2^k workers, to which the others first hand in."""
    levels = workers.bit_length() - 1
    block = 1 << levels
    share, others = 2 * (block - 1) / block * size, workers - block
    if not others:
        return share, share, LevelCost(2 * levels, share)
    mean = (block * share + 2 * others * size) / workers  # the others send all that they have, and get all of the sum
    return mean, share + size, LevelCost(2 * levels + 2, share + 2 * size, ready_rounds=2)  # the first and the last


def two_level_cost(workers: int, size: float, nodes: int) -> AllReduceCost:
    """Return the cost of a scatter and a gather inside each node, with rings between nodes in the middle."""
    group, remainder = divmod(workers, nodes)
    if remainder:
        raise EquipoiseError(
            "option-range",
            f"cannot estimate a two-level sum over {workers} workers on {nodes} nodes: each node needs as many workers",
        )
    inside = 2 * (group - 1) / group * size
    outside = 2 * (nodes - 1) / nodes * size  # that of a node; each of its workers sends its part
    sent = inside + outside / group
    return AllReduceCost(sent, sent, LevelCost(2 * (group - 1), inside), LevelCost(2 * (nodes - 1), outside))


def all_reduce_seconds(
    cost: AllReduceCost, *, local: tuple[float, float] = (0.0, 0.0), between: tuple[float, float] = (0.0, 0.0)
) -> float:
    """Return the seconds of a sum; each level has its seconds a message and its seconds a byte."""
    return cost.local.seconds(*local) + cost.between.seconds(*between)


def parameter_server_seconds(
    workers: int, servers: int, gradient_bytes: float, alpha: float, beta: float, full_duplex: bool = False
) -> float:
    """Return the seconds of a push and a pull of all workers, on servers that are no workers and share the gradient.

    With `full_duplex`, pieces are pulled while others are still pushed.
    """
    if min(workers, servers) < 1:
        raise EquipoiseError("option-range", f"cannot estimate {workers} workers on {servers} servers: give at least 1")
    transfers = 2 * max(1.0, workers / servers) * gradient_bytes * beta
    return 2 * alpha + (transfers / 2 if full_duplex else transfers)
