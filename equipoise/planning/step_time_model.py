"""The forms that the time of one optimizer step may have, over nodes, workers and batch.

    T1 = a + c * batch                                  computing
    T2 = 2 (p - 1) alpha + 2 (p - 1) / p * volume       an exchange in a ring of p workers
    T  = (T1^g + T2^g)^(1/g)                            g above 1: they overlap; below: they stand in each other's way

`volume` is the gradient's bytes times the seconds a byte takes. Inside a node and between
nodes the ring has an alpha and a volume of its own. A ring may hold all workers
(`ring`), or first those of a node and then one of each node (`two rings`).
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVELS = ("local", "between")  # of the exchange: inside a node, and between nodes


class Form(NamedTuple):
    """Which parameters a fit has."""

    two_rings: bool = False
    local: tuple[str, ...] = ()
    """of the exchange inside a node: alpha and volume, volume alone, or none"""
    between: tuple[str, ...] = ()
    """of the exchange between nodes"""
    overlap: bool = False
    """whether g is fitted; otherwise 1: nothing overlaps"""
    batch: bool = True
    """whether the part of computing that grows with the batch is told apart"""

    @property
    def names(self) -> list[str]:
        """Parameters in the order of their vector."""
        names = ["a", *(["c"] if self.batch else [])]
        names += [f"local_{name}" for name in self.local] + [f"between_{name}" for name in self.between]
        return names + ["g"] * self.overlap


class Places(NamedTuple):
    """Settings whose step time is asked for: arrays of one length."""

    nodes: Floats
    workers: Floats
    batch: Floats

    @classmethod
    def of(cls, rows: pd.DataFrame) -> "Places":
        """The settings of a table."""
        return cls(*(rows[name].to_numpy(float) for name in ("nodes", "workers", "batch")))


def ring(size: Floats, alpha: float, volume: Floats | float) -> Floats:
    """Seconds in which `size` workers sum what takes `volume` seconds to send once, at `alpha` seconds a message."""
    return 2 * (size - 1) * alpha + 2 * (size - 1) / size * volume


def parts(form: Form, parameters: dict[str, float], at: Places, share: Floats | float = 1.0) -> tuple[Floats, Floats]:
    """Seconds of computing and of the exchange, each alone; `share` of the gradient's bytes is exchanged."""
    known = dict.fromkeys(("c", "local_alpha", "local_volume", "between_alpha", "between_volume"), 0.0) | parameters
    compute = known["a"] + known["c"] * at.batch
    local = known["local_alpha"], known["local_volume"] * share
    between = known["between_alpha"], known["between_volume"] * share
    if form.two_rings:
        inside = np.ceil(at.workers / at.nodes)
        return compute, ring(inside, *local) + ring(at.nodes, *between)
    return compute, np.where(at.nodes > 1, ring(at.workers, *between), ring(at.workers, *local))


def together(compute: Floats, exchange: Floats, g: float) -> Floats:
    """Seconds of a step whose parts overlap as `g` says: 1 is their sum, 10 nearly the longer of both."""
    longer, shorter = np.maximum(compute, exchange), np.minimum(compute, exchange)
    return np.asarray(longer * (1 + (shorter / longer) ** g) ** (1 / g))


def seconds(form: Form, parameters: dict[str, float], at: Places) -> Floats:
    """Seconds of a step."""
    return together(*parts(form, parameters, at), parameters.get("g", 1.0))
