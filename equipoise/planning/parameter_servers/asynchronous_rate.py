"""Closed forms of workers that wait for no other worker: how often the servers update the weights.

    period of a worker     t + 2 alpha + 2 (1 - own part) m beta          compute, push, pull
    updates a second       sum of 1 / period
                           at most 1 / (2 m share beta (1 - 1/p))         link of the server with the largest part
                           at most (S + p) / longest period               no gradient more than S updates old

The last one: while the slowest worker computes, S updates of others come before its own, which takes along what was
held back, at most one gradient of each other worker. With S = 0 all workers wait for the slowest.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from equipoise.planning.parameter_servers.server_cost import count_servers, require_share
from equipoise.type_aliases import FloatArray

ROUNDING = 1e-9  # of a ratio of seconds that is a whole number
MIN_PUSH_SECONDS = 1e-30  # of a link without bytes, which never saturates


class StoreLink(NamedTuple):
    """Delay and rate of the links between workers and servers, of one network or of several, and what travels."""

    gradient_bytes: float = 0.0
    alpha: FloatArray | float = 0.0
    """seconds a message"""
    beta: FloatArray | float = 0.0
    """seconds a byte"""


def asynchronous_updates_per_second(
    compute_seconds: Sequence[float],
    servers: int = 0,
    link: StoreLink | None = None,
    *,
    staleness: int | None = None,
    largest_share: float | None = None,
) -> FloatArray:
    """Return how many gradients of one worker the servers apply in a second, with 0 servers for one on each worker.

    `compute_seconds` has those of each worker for a gradient. Without `staleness` gradients may be of any age.
    """
    workers, link = len(compute_seconds), link or StoreLink()
    servers = count_servers(servers, workers)
    share = require_share(largest_share, servers)
    volume = 2 * link.gradient_bytes * link.beta
    delay = 2 * link.alpha if workers > 1 else 0.0
    own_shares = [1 / servers if rank < servers else 0.0 for rank in range(workers)]
    periods = np.array(
        [np.asarray(t + delay + (1 - own) * volume) for t, own in zip(compute_seconds, own_shares, strict=True)]
    )
    rate = (1 / periods).sum(axis=0)
    longest_push = np.maximum(share * volume * (1 - 1 / workers), MIN_PUSH_SECONDS)
    rate = np.minimum(rate, 1 / longest_push)
    if staleness is not None:
        rate = np.minimum(rate, (staleness + workers) / periods.max(axis=0))
    return np.asarray(rate)


def asynchronous_step_seconds(
    compute_seconds: Sequence[float],
    servers: int = 0,
    link: StoreLink | None = None,
    *,
    staleness: int | None = None,
    largest_share: float | None = None,
) -> FloatArray:
    """Return the seconds in which as many gradients are applied as there are workers, which is a global batch."""
    rate = asynchronous_updates_per_second(
        compute_seconds, servers, link, staleness=staleness, largest_share=largest_share
    )
    return np.asarray(len(compute_seconds) / rate)


def free_staleness(compute_seconds: Sequence[float]) -> int:
    """Return the smallest bound S with which nobody waits, in whatever order gradients arrive.

    While the slowest worker computes, each other one may push as often as it begins a gradient. A lower bound lets some
    wait: at the one where (S + p) / longest period is as high as the sum of rates, by up to a fifth of the time.
    """
    slowest = max(range(len(compute_seconds)), key=lambda rank: compute_seconds[rank])
    others = [seconds for rank, seconds in enumerate(compute_seconds) if rank != slowest]
    return sum(math.ceil(compute_seconds[slowest] / seconds - ROUNDING) for seconds in others)


def mean_staleness(workers: int, staleness: int) -> float:
    """Return how many gradients of others come between a pull and the update with its gradient, on equal workers.

    With a bound S below p - 1, S workers are applied one by one and the others together: S of p gradients miss p - 1
    others, and p - S of them miss S. Without a bound all miss p - 1, and so they do in the mean if workers are unequal.
    """
    bound = min(staleness, workers - 1)
    return bound * (2 * workers - 1 - bound) / workers
