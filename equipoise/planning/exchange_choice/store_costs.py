"""Step times where workers push gradients to servers: `server` and `async:S`, by the closed forms of the store.

Servers sum what an all-reduce would: `server` changes the seconds of a step alone. Those of `async:S` are the seconds
in which as many gradients are applied as there are workers. Nothing hides a push behind computing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from equipoise.planning.exchanges.exchange_name import ExchangeMethod
from equipoise.planning.exchanges.exchange_time import LevelCost
from equipoise.planning.parameter_servers.asynchronous_rate import StoreLink, asynchronous_step_seconds
from equipoise.planning.parameter_servers.server_cost import find_part_shares
from equipoise.planning.step_time_model import NETWORK_LEVELS, StepSettings
from equipoise.type_aliases import FloatArray

Links = Mapping[str, FloatArray | float]
"""seconds a message and seconds of the whole gradient on each level, as the fit of step times names them"""


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """What the time of a push depends on beside the links."""

    key_bytes: tuple[float, ...] = ()
    """bytes of each parameter, which is on one server; parts are equal if they are not known"""
    seconds_by_worker: Mapping[int, Mapping[int, tuple[float, ...]]] = field(default_factory=dict)
    """measured seconds that each worker computes, by the number of workers and the batch, where workers are unequal"""

    def find_seconds_by_worker(self, workers: int, batch: float) -> list[float] | None:
        """Return the seconds that each worker computes, between measured batches if need be; None for equal workers."""
        if not (measured := self.seconds_by_worker.get(workers)):
            return None
        batches = sorted(measured)
        columns = zip(*(measured[size] for size in batches), strict=True)
        return [float(np.interp(batch, batches, column)) for column in columns]


def store_step_seconds(
    method: ExchangeMethod,
    settings: StepSettings,
    compute: FloatArray,
    links: Links,
    facts: StoreFacts,
    correction: FloatArray | float = 1.0,
) -> FloatArray:
    """Return the seconds of a step at each setting, where workers are equal with so many seconds of computing.

    They are multiplied by what measured steps say beyond their fit; the measured seconds of unequal workers stay. Links
    may have a row for each of several networks, then so has the result. It is infinite where a setting has too few
    workers for so many servers.
    """
    columns = []
    rows = zip(*settings, *np.broadcast_arrays(compute, correction), strict=True)
    for nodes, workers, batch, seconds, factor in rows:
        own_seconds = facts.find_seconds_by_worker(int(workers), batch)
        is_equal = own_seconds is None
        own_seconds = [float(seconds)] * int(workers) if own_seconds is None else own_seconds
        step = setting_step_seconds(method, int(nodes), own_seconds, links, facts.key_bytes)
        columns.append(step * factor if is_equal else step)
    networks = np.broadcast_shapes(*(part.shape for level in NETWORK_LEVELS for part in read_link(links, level)))
    return np.stack([np.broadcast_to(column, networks) for column in columns], axis=-1)


def setting_step_seconds(
    method: ExchangeMethod, nodes: int, own_seconds: Sequence[float], links: Links, key_bytes: Sequence[float]
) -> FloatArray:
    """Return the seconds of a step of workers that compute for so long, for each network."""
    workers = len(own_seconds)
    hosts = nodes if method.all_reduce == "two-level" else workers
    if method.servers > hosts or workers % hosts:
        return np.array(np.inf)
    shares = find_part_shares(key_bytes, method.servers or hosts)
    if method.sync == "async":
        alpha, volume = read_link(links, "between" if nodes > 1 else "local")
        link, largest = StoreLink(1.0, alpha, volume), max(shares) if shares else None
        return asynchronous_step_seconds(
            own_seconds, method.servers, link, staleness=method.staleness, largest_share=largest
        )
    cost = method.push_cost(1.0, workers, nodes, shares)  # in gradients
    exchange = level_seconds(cost.local, links, "local") + level_seconds(cost.between, links, "between")
    return max(own_seconds) + exchange


def level_seconds(cost: LevelCost, links: Links, level: str) -> FloatArray:
    """Return the seconds on one level, for each network."""
    alpha, volume = read_link(links, level)
    return cost.rounds * alpha + cost.serial_bytes * volume


def read_link(links: Links, level: str) -> tuple[FloatArray, FloatArray]:
    """Return the seconds a message and those of the whole gradient on one level; 0 where they were not fitted."""
    alpha, volume = (np.asarray(links.get(f"{level}_{name}", 0.0)) for name in ("alpha", "volume"))
    return (alpha[:, 0] if alpha.ndim else alpha), (volume[:, 0] if volume.ndim else volume)
