"""The hyperbola through runs of several global batches, and how it is fitted.

    E(B) = E_min * (1 + B / B_c)

E_min are the examples that infinitely many small steps need, B_c is the critical batch: there
half of every example is wasted (McCandlish et al., 2018). Runs cut off at their cap are
known to need more than the cap, and are counted as that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import norm

Floats = NDArray[np.float64]

FAR = 5.0  # natural logs beyond the batches measured in which the critical batch is looked for
STEPS, RIDGE = 50, 1e-9  # of Gauss and Newton, and what keeps them finite where the curve is flat


def hyperbola(batch: Floats, log_least: Floats | float, log_critical: Floats | float) -> Floats:
    """Log of the examples to the target."""
    return np.asarray(log_least + np.log1p(batch / np.exp(log_critical)))


class Runs(NamedTuple):
    """Runs as arrays, ordered by batch; the last axis is of runs, others are of draws."""

    batch: Floats
    logs: Floats
    """of the examples"""
    reached: NDArray[np.bool_]

    @classmethod
    def of(cls, table: pd.DataFrame) -> "Runs":
        """The runs of a table."""
        table = table.sort_values("global_batch")
        logs = np.log(table.examples.to_numpy(float))
        return cls(table.global_batch.to_numpy(float), logs, table.reached.to_numpy() == 1)

    @classmethod
    def stacked(cls, draws: Sequence["Runs"]) -> "Runs":
        """Draws of the same runs, one a row."""
        batch, logs, reached = zip(*draws, strict=True)
        return cls(np.stack(batch), np.stack(logs), np.stack(reached))


def fit(runs: Runs, noise: float) -> tuple[float, float]:
    """log E_min and log B_c with the greatest robust likelihood."""
    low, high = np.log(runs.batch.min()) - FAR, np.log(runs.batch.max()) + FAR
    starts = np.array([(runs.logs.min(), middle) for middle in np.linspace(low + 2, high - 2, 6)])
    copies = Runs.stacked([runs] * len(starts))
    found = climbed(copies, noise, starts, (low, high))
    least, critical = found[np.argmin(cost(copies, noise, found))]
    return float(least), float(critical)


def climbed(runs: Runs, noise: float, points: Floats, bounds: tuple[float, float]) -> Floats:
    """Where Gauss-Newton's steps lead from each point, for each draw of runs; log B_c stays within bounds.

    Weights make the loss soft-L1; a run that was cut off counts as what it needs on average,
    given that this is above its cap (expectation maximisation).
    """
    for _ in range(STEPS):
        shape = runs.batch / np.exp(points[:, 1:])
        mean = points[:, :1] + np.log1p(shape)
        above = (runs.logs - mean) / noise
        hazard = np.exp(norm.logpdf(above) - log_ndtr(-above))
        off = np.where(runs.reached, runs.logs - mean, noise * hazard)
        weight = 1 / np.sqrt(1 + (off / noise) ** 2)
        slope = -shape / (1 + shape)  # of the mean along log B_c; along log E_min it is 1
        s0, s1, s2 = weight.sum(1), (weight * slope).sum(1), (weight * slope**2).sum(1) + RIDGE
        r0, r1 = (weight * off).sum(1), (weight * slope * off).sum(1)
        along = np.clip((s0 * r1 - s1 * r0) / (s0 * s2 - s1**2), -1, 1)
        critical = np.clip(points[:, 1] + along, *bounds)
        least = points[:, 0] + (r0 - s1 * (critical - points[:, 1])) / s0
        points = np.stack([least, critical], 1)
    return points


def cost(runs: Runs, noise: float, points: Floats) -> Floats:
    """Twice the negative log likelihood, soft-L1 for runs that reached the target."""
    off = (runs.logs - hyperbola(runs.batch, points[:, :1], points[:, 1:])) / noise
    each = np.where(runs.reached, 2 * (np.sqrt(1 + off**2) - 1), -2 * log_ndtr(-off))
    return np.asarray(each.sum(1))


def resampled(runs: Runs, noise: float, lack: float, draw: int) -> Runs:
    """Runs as they might have come out.

    Those of a batch are drawn anew, or moved by the noise where they are fewer than three; then the
    batch is moved as a whole by what the hyperbola lacks.
    """
    rng = np.random.default_rng(draw)
    starts = np.flatnonzero(np.diff(runs.batch, prepend=-1.0))
    picked, moved = [], []
    for first, last in zip(starts, [*starts[1:], len(runs.batch)], strict=True):
        few = last - first < 3
        picked.append(np.arange(first, last) if few else rng.integers(first, last, last - first))
        moved.append(lack * rng.standard_normal() + few * noise * rng.standard_normal(last - first))
    chosen = np.concatenate(picked)
    reached = runs.reached[chosen]
    return Runs(runs.batch[chosen], runs.logs[chosen] + np.concatenate(moved) * reached, reached)
