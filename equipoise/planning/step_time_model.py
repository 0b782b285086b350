"""The forms that the time of one optimizer step may have, over nodes, workers and batch.

    T1 = a + c * batch                                  computing
    T2 = 2 (p - 1) alpha + 2 (p - 1) / p * volume       an exchange in a ring of p workers
    T  = (T1^g + T2^g)^(1/g)                            g above 1: they overlap; below: they stand in each other's way

`volume` is the gradient's bytes times the seconds a byte takes. Inside a node and between
nodes the ring has an alpha and a volume of its own. A ring may hold all workers
(`ring_all_reduce_seconds`), or first those of a node and then one of each node (`two rings`).
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.type_aliases import FloatArray

NETWORK_LEVELS = ("local", "between")  # of the exchange: inside a node, and between nodes


class StepTimeForm(NamedTuple):
    """Which parameters a fit has."""

    two_rings: bool = False
    local_terms: tuple[str, ...] = ()
    """of the exchange inside a node: alpha and volume, volume alone, or none"""
    between_terms: tuple[str, ...] = ()
    """of the exchange between nodes"""
    has_overlap: bool = False
    """whether g is fitted; otherwise 1: nothing overlaps"""
    has_batch_term: bool = True
    """whether the part of computing that grows with the batch is told apart"""

    @property
    def parameter_names(self) -> list[str]:
        """Parameters in the order of their vector."""
        names = ["a", *(["c"] if self.has_batch_term else [])]
        names += [f"local_{name}" for name in self.local_terms] + [f"between_{name}" for name in self.between_terms]
        return names + ["g"] * self.has_overlap


class StepSettings(NamedTuple):
    """Settings whose step time is asked for: arrays of one length."""

    nodes: FloatArray
    workers: FloatArray
    batch: FloatArray

    @classmethod
    def from_table(cls, rows: pd.DataFrame) -> "StepSettings":
        """The settings of a table."""
        return cls(*(rows[name].to_numpy(float) for name in ("nodes", "workers", "batch")))


def ring_all_reduce_seconds(workers: FloatArray, alpha: float, volume: FloatArray | float) -> FloatArray:
    """Seconds in which `size` workers sum what takes `volume` seconds to send once, at `alpha` seconds a message."""
    return 2 * (workers - 1) * alpha + 2 * (workers - 1) / workers * volume


def compute_and_exchange_seconds(
    form: StepTimeForm, parameters: dict[str, float], settings: StepSettings, byte_share: FloatArray | float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Seconds of computing and of the exchange, each alone; `share` of the gradient's bytes is exchanged."""
    known = dict.fromkeys(("c", "local_alpha", "local_volume", "between_alpha", "between_volume"), 0.0) | parameters
    compute = known["a"] + known["c"] * settings.batch
    local = known["local_alpha"], known["local_volume"] * byte_share
    between = known["between_alpha"], known["between_volume"] * byte_share
    if form.two_rings:
        inside = np.ceil(settings.workers / settings.nodes)
        return compute, ring_all_reduce_seconds(inside, *local) + ring_all_reduce_seconds(settings.nodes, *between)
    return compute, np.where(
        settings.nodes > 1,
        ring_all_reduce_seconds(settings.workers, *between),
        ring_all_reduce_seconds(settings.workers, *local),
    )


def overlapped_seconds(compute: FloatArray, exchange: FloatArray, g: float) -> FloatArray:
    """Seconds of a step whose parts overlap as `g` says: 1 is their sum, 10 nearly the longer of both."""
    longer, shorter = np.maximum(compute, exchange), np.minimum(compute, exchange)
    return np.asarray(longer * (1 + (shorter / longer) ** g) ** (1 / g))


def step_seconds(form: StepTimeForm, parameters: dict[str, float], settings: StepSettings) -> FloatArray:
    """Seconds of a step."""
    return overlapped_seconds(*compute_and_exchange_seconds(form, parameters, settings), parameters.get("g", 1.0))
