"""Delay and rate of each all-reduce algorithm, from sums that were timed by that algorithm.

A ring's message may cost more than half of a ping-pong: a receiver of gloo first says that it is ready, so a message
pays the delay of the link twice. So each algorithm has an alpha of its own, from its own small sums.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from equipoise.planning.exchanges.exchange_time import LevelCost, all_reduce_cost
from equipoise.planning.step_time_fit import NO_EXCHANGES
from equipoise.type_aliases import FloatArray

FIT_ROUNDS = 8  # of a fit in which delays overlap with bytes
MIN_BYTES_RATIO = 8  # bytes of the largest sum over the smallest: enough to separate alpha from beta


class AlgorithmLink(NamedTuple):
    """Seconds a message and a byte of an algorithm on one network level; beta is None if only small sums were timed."""

    alpha: float
    beta: float | None


def assign_nodes(sums: pd.DataFrame, steps: pd.DataFrame) -> pd.DataFrame:
    """Return the sums with the nodes of the step times on as many workers, where the table has none."""
    if "nodes" in sums:
        return sums
    most_nodes = steps.groupby("workers").nodes.max()
    nodes = sums.ranks.map(most_nodes)
    one_node = (steps.nodes == 1).all()
    return sums.assign(nodes=nodes.fillna(1.0) if one_node else nodes.fillna(sums.ranks))


def fit_algorithm_links(sums: pd.DataFrame) -> dict[tuple[str, bool], AlgorithmLink]:
    """Return the links of each algorithm, by its name and whether several nodes took part.

    `two-level` is left out: one time does not tell its two levels apart.
    """
    links = {}
    flat = sums[sums.algorithm != "two-level"]
    for (name, is_between), group in flat.groupby(["algorithm", flat.nodes > 1]):
        sizes = group[["ranks", "nodes", "bytes"]].to_numpy(int).tolist()
        costs = [single_level_cost(str(name), ranks, nodes, size) for ranks, nodes, size in sizes]
        links[str(name), bool(is_between)] = fit_link(costs, group.seconds.to_numpy(float))
    return links


def single_level_cost(name: str, ranks: int, nodes: int, size: float) -> LevelCost:
    """Return the cost of a sum on the level that it uses."""
    cost = all_reduce_cost(name, ranks, size, nodes)
    return cost.between if nodes > 1 else cost.local


def fit_link(costs: list[LevelCost], seconds: FloatArray) -> AlgorithmLink:
    """Fit alpha and beta to sums; without a range of bytes all of the seconds of the smallest are delay."""
    sizes = np.array([cost.serial_bytes for cost in costs], float)
    if sizes.max() < MIN_BYTES_RATIO * sizes.min():
        delays = np.array([cost.delays for cost in costs], float)
        return AlgorithmLink(float(np.median(seconds / delays)), None)
    alpha = beta = 0.0
    for _ in range(FIT_ROUNDS):  # whether a delay or the bytes beside it are shorter depends on the link itself
        alpha, beta = fit_line([subtract_overlap(cost, alpha, beta) for cost in costs], seconds)
    return AlgorithmLink(alpha, beta)


def subtract_overlap(cost: LevelCost, alpha: float, beta: float) -> tuple[float, float]:
    """Return delays and bytes of a sum, less the delays that overlap with bytes, or these bytes if they are shorter."""
    if alpha <= cost.overlapped_bytes * beta:
        return cost.delays - cost.overlapped_rounds, cost.serial_bytes
    return cost.delays, cost.serial_bytes - cost.overlapped_rounds * cost.overlapped_bytes


def fit_line(costs: list[tuple[float, float]], seconds: FloatArray) -> tuple[float, float]:
    """Fit the seconds a round and a byte to sums of so many rounds and bytes, by relative errors."""
    design = np.array(costs, float) / seconds[:, None]
    scale = design.max(axis=0)
    alpha, beta = nnls(design / scale, np.ones(len(seconds)))[0] / scale
    return float(alpha), float(beta)


def replace_ring_messages(
    exchanges: pd.DataFrame | None, sums: pd.DataFrame, gradient_bytes: float
) -> pd.DataFrame | None:
    """Return the exchanges for the fit of step times, with rings as the table of algorithms timed them.

    Where a level has them, they replace messages: half of a ping-pong is no round of a ring.
    """
    rings = sums[sums.algorithm == "ring"]
    if rings.empty:
        return exchanges
    exchanges = NO_EXCHANGES if exchanges is None else exchanges
    levels = set((rings.nodes > 1).tolist())
    kept = exchanges[~((exchanges.kind == "message") & (exchanges.nodes > 1).isin(levels))]
    rows = pd.DataFrame(
        {
            "nodes": rings.nodes,
            "workers": rings.ranks,
            "kind": "sum",
            "share": rings.bytes / gradient_bytes,
            "seconds": rings.seconds,
        }
    )
    return rows if kept.empty else pd.concat([kept[rows.columns], rows], ignore_index=True)
