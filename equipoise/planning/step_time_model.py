"""Model of the time of one optimizer step over nodes, workers and batch, in several forms.

    T1 = a + c * batch                                  compute
    T2 = 2 (p - 1) alpha + 2 (p - 1) / p * volume       exchange: all-reduce in a ring of p workers
    T  = (T1^g + T2^g)^(1/g)                            g above 1: they overlap; below 1: they slow each other down

`alpha` is the seconds per message, `volume` the gradient's bytes times the seconds per byte; both differ
inside a node (`local`) and between nodes (`between`). The exchange is one ring of all workers, or, with
`two_rings`, a ring inside each node followed by a ring of one worker per node.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from equipoise.type_aliases import FloatArray

NETWORK_LEVELS = ("local", "between")  # inside a node, and between nodes
StepParameters = Mapping[str, float] | Mapping[str, FloatArray] | Mapping[str, FloatArray | float]
"""parameters by name; arrays have one row for each of several values, and one column"""


class StepTimeForm(NamedTuple):
    """Form of the model: which parameters are fitted."""

    two_rings: bool = False
    """true for a ring inside each node and one between nodes, false for one ring of all workers"""
    local_terms: tuple[str, ...] = ()
    """fitted parameters of the exchange inside a node: alpha and volume, volume alone, or none"""
    between_terms: tuple[str, ...] = ()
    """fitted parameters of the exchange between nodes: alpha and volume, volume alone, or none"""
    has_overlap: bool = False
    """true if g is fitted; otherwise g is 1 and nothing overlaps"""
    has_batch_term: bool = True
    """true if c is fitted; otherwise computing does not depend on the batch"""

    @property
    def parameter_names(self) -> list[str]:
        """Names of the fitted parameters, in the order of the parameter vector."""
        names = ["a", *(["c"] if self.has_batch_term else [])]
        names += [f"local_{name}" for name in self.local_terms] + [f"between_{name}" for name in self.between_terms]
        return names + ["g"] * self.has_overlap


class StepSettings(NamedTuple):
    """Settings to predict step times for, as arrays of equal length."""

    nodes: FloatArray
    workers: FloatArray
    batch: FloatArray

    @classmethod
    def from_table(cls, rows: pd.DataFrame) -> "StepSettings":
        """Build the arrays from a table with the columns nodes, workers and batch."""
        return cls(*(rows[name].to_numpy(float) for name in ("nodes", "workers", "batch")))


def ring_all_reduce_seconds(workers: FloatArray, alpha: FloatArray | float, volume: FloatArray | float) -> FloatArray:
    """Return the seconds of a ring all-reduce of a gradient that takes `volume` seconds to send once."""
    return 2 * (workers - 1) * alpha + 2 * (workers - 1) / workers * volume


def compute_and_exchange_seconds(
    form: StepTimeForm, parameters: StepParameters, settings: StepSettings, byte_share: FloatArray | float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Return the seconds of computing and of exchanging `byte_share` of the gradient, each without overlap."""
    values = {
        **dict.fromkeys(("c", "local_alpha", "local_volume", "between_alpha", "between_volume"), 0.0),
        **parameters,
    }
    compute = values["a"] + values["c"] * settings.batch
    local = values["local_alpha"], values["local_volume"] * byte_share
    between = values["between_alpha"], values["between_volume"] * byte_share
    if form.two_rings:
        workers_per_node = np.ceil(settings.workers / settings.nodes)
        return compute, ring_all_reduce_seconds(workers_per_node, *local) + ring_all_reduce_seconds(
            settings.nodes, *between
        )
    return compute, np.where(
        settings.nodes > 1,
        ring_all_reduce_seconds(settings.workers, *between),
        ring_all_reduce_seconds(settings.workers, *local),
    )


def overlapped_seconds(compute: FloatArray, exchange: FloatArray, g: FloatArray | float) -> FloatArray:
    """Return the seconds of a step whose parts overlap with exponent g: 1 is their sum, 10 nearly the longer one."""
    longer, shorter = np.maximum(compute, exchange), np.minimum(compute, exchange)
    return np.asarray(longer * (1 + (shorter / longer) ** g) ** (1 / g))


def step_seconds(form: StepTimeForm, parameters: StepParameters, settings: StepSettings) -> FloatArray:
    """Return the seconds per optimizer step at each setting."""
    return overlapped_seconds(*compute_and_exchange_seconds(form, parameters, settings), parameters.get("g", 1.0))
