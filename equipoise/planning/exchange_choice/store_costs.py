"""Step times where workers push gradients to servers: `server` and `async:S`, by the closed forms of the store.

Servers sum what an all-reduce would: `server` changes the seconds of a step alone. Those of `async:S` are the seconds
in which as many gradients are applied as there are workers. Nothing hides a push behind computing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from equipoise.planning.exchanges.exchange_name import ExchangeMethod
from equipoise.planning.exchanges.exchange_time import LevelCost
from equipoise.planning.parameter_servers.asynchronous_rate import StoreLink, asynchronous_step_seconds
from equipoise.planning.parameter_servers.server_cost import find_largest_share
from equipoise.planning.step_time_model import StepSettings
from equipoise.type_aliases import FloatArray

Links = Mapping[str, FloatArray | float]
"""seconds a message and seconds of the whole gradient on each level, as the fit of step times names them"""


@dataclass(frozen=True, kw_only=True)
class StoreFacts:
    """What the time of a push depends on beside the links."""

    key_bytes: tuple[float, ...] = ()
    """bytes of each parameter, which is on one server; parts are equal if they are not known"""
    relative_seconds: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    """seconds that each worker computes over those of the slowest one, by the number of workers where they differ"""


def store_step_seconds(
    method: ExchangeMethod, settings: StepSettings, compute: FloatArray, links: Links, facts: StoreFacts
) -> FloatArray:
    """Return the seconds of a step at each setting, whose slowest worker computes for so long.

    Links may have a row for each of several networks, then so has the result. It is infinite where a setting has too
    few workers for so many servers.
    """
    columns = []
    for nodes, workers, seconds in zip(settings.nodes, settings.workers, compute, strict=True):
        columns.append(setting_step_seconds(method, int(nodes), int(workers), float(seconds), links, facts))
    return np.stack(np.broadcast_arrays(*columns), axis=-1)


def setting_step_seconds(
    method: ExchangeMethod, nodes: int, workers: int, compute: float, links: Links, facts: StoreFacts
) -> FloatArray:
    """Return the seconds of a step at one setting, for each network."""
    hosts = nodes if method.all_reduce == "two-level" else workers
    if method.servers > hosts or workers % hosts:
        return np.array(np.inf)
    share = find_largest_share(facts.key_bytes, method.servers or hosts)
    if method.sync == "async":
        alpha, volume = read_link(links, "between" if nodes > 1 else "local")
        own_seconds = [compute * relative for relative in facts.relative_seconds.get(workers, (1.0,) * workers)]
        return asynchronous_step_seconds(
            own_seconds, method.servers, StoreLink(1.0, alpha, volume), staleness=method.staleness, largest_share=share
        )
    cost = method.push_cost(1.0, workers, nodes, share)  # in gradients
    return compute + level_seconds(cost.local, links, "local") + level_seconds(cost.between, links, "between")


def level_seconds(cost: LevelCost, links: Links, level: str) -> FloatArray:
    """Return the seconds on one level, for each network."""
    alpha, volume = read_link(links, level)
    return cost.rounds * alpha + cost.serial_bytes * volume


def read_link(links: Links, level: str) -> tuple[FloatArray, FloatArray]:
    """Return the seconds a message and those of the whole gradient on one level; 0 where they were not fitted."""
    alpha, volume = (np.squeeze(np.asarray(links.get(f"{level}_{name}", 0.0))) for name in ("alpha", "volume"))
    return alpha, volume
