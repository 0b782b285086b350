"""Seconds of a sum by the closed form of its algorithm, with a delay and a rate that are fitted to its own sums."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from equipoise.planning.exchanges.algorithm_times import AlgorithmLink, fit_link
from equipoise.planning.exchanges.exchange_time import LevelCost, all_reduce_cost
from equipoise.planning.exchanges.link_report import SumTiming

BACKEND_FORM = "ring"  # gloo and NCCL sum large tensors around a ring


def closed_form_cost(algorithm: str, ranks: int, nodes: int, size: float) -> LevelCost:
    """Return rounds and serial bytes of a sum, those inside the nodes and between them together.

    gloo sends each part around its ring in two halves, so that the delay of one passes while the other travels, except
    in the first round and the last. Parts of more than 2 MiB go in more pieces, whose delays may take longer than here.
    """
    is_backend = algorithm == "backend"
    cost = all_reduce_cost(BACKEND_FORM if is_backend else algorithm, ranks, size, nodes)
    level = LevelCost(
        cost.rounds,
        cost.local.serial_bytes + cost.between.serial_bytes,
        ready_rounds=cost.local.ready_rounds + cost.between.ready_rounds,
    )
    if not is_backend:
        return level
    return level._replace(overlapped_rounds=max(0, cost.rounds - 2), overlapped_bytes=size / ranks / 2)


def fit_closed_forms(rows: Sequence[SumTiming]) -> dict[str, AlgorithmLink]:
    """Fit the seconds a message and a byte of each algorithm to its sums.

    Those of `two-level` are means over its two levels, which hold for these workers and nodes alone.
    """
    links = {}
    for name in dict.fromkeys(row.algorithm for row in rows):
        own = [row for row in rows if row.algorithm == name]
        costs = [closed_form_cost(name, row.ranks, row.nodes, row.bytes) for row in own]
        links[str(name)] = fit_link(costs, np.array([row.seconds for row in own]))
    return links


def predict_sum_seconds(link: AlgorithmLink, algorithm: str, ranks: int, nodes: int, size: float) -> float | None:
    """Return the seconds of a sum by its closed form; None if the rate of its link is not known."""
    if link.beta is None:
        return None
    return closed_form_cost(algorithm, ranks, nodes, size).seconds(link.alpha, link.beta)


def add_closed_forms(rows: Sequence[SumTiming]) -> tuple[SumTiming, ...]:
    """Return the rows with the seconds of their closed forms."""
    links = fit_closed_forms(rows)
    return tuple(
        replace(
            row,
            closed_form_seconds=predict_sum_seconds(
                links[row.algorithm], row.algorithm, row.ranks, row.nodes, row.bytes
            ),
        )
        for row in rows
    )
