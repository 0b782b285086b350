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

from equipoise.type_aliases import FloatArray

SEARCH_MARGIN_LOGS = 5.0  # natural logs beyond the batches measured in which the critical batch is looked for
GAUSS_NEWTON_STEPS, NEWTON_RIDGE = 50, 1e-9  # of Gauss and Newton, and what keeps them finite where the curve is flat


def log_examples(
    batch: FloatArray, log_min_examples: FloatArray | float, log_critical_batch: FloatArray | float
) -> FloatArray:
    """Log of the examples to the target."""
    return np.asarray(log_min_examples + np.log1p(batch / np.exp(log_critical_batch)))


class RunArrays(NamedTuple):
    """Runs as arrays, ordered by batch; the last axis is of runs, others are of draws."""

    batch: FloatArray
    log_examples: FloatArray
    """of the examples"""
    reached: NDArray[np.bool_]

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> "RunArrays":
        """The runs of a table."""
        table = table.sort_values("global_batch")
        logs = np.log(table.examples.to_numpy(float))
        return cls(table.global_batch.to_numpy(float), logs, table.reached.to_numpy() == 1)

    @classmethod
    def stack(cls, draws: Sequence["RunArrays"]) -> "RunArrays":
        """Draws of the same runs, one a row."""
        batch, logs, reached = zip(*draws, strict=True)
        return cls(np.stack(batch), np.stack(logs), np.stack(reached))


def fit_hyperbola(runs: RunArrays, seed_noise: float) -> tuple[float, float]:
    """log E_min and log B_c with the greatest robust likelihood."""
    low, high = np.log(runs.batch.min()) - SEARCH_MARGIN_LOGS, np.log(runs.batch.max()) + SEARCH_MARGIN_LOGS
    starts = np.array([(runs.log_examples.min(), middle) for middle in np.linspace(low + 2, high - 2, 6)])
    copies = RunArrays.stack([runs] * len(starts))
    found = gauss_newton(copies, seed_noise, starts, (low, high))
    least, critical = found[np.argmin(negative_log_likelihood(copies, seed_noise, found))]
    return float(least), float(critical)


def gauss_newton(runs: RunArrays, seed_noise: float, points: FloatArray, bounds: tuple[float, float]) -> FloatArray:
    """Where Gauss-Newton's steps lead from each point, for each draw of runs; log B_c stays within bounds.

    Weights make the loss soft-L1; a run that was cut off counts as what it needs on average,
    given that this is above its cap (expectation maximisation).
    """
    for _ in range(GAUSS_NEWTON_STEPS):
        shape = runs.batch / np.exp(points[:, 1:])
        mean = points[:, :1] + np.log1p(shape)
        above = (runs.log_examples - mean) / seed_noise
        hazard = np.exp(norm.logpdf(above) - log_ndtr(-above))
        off = np.where(runs.reached, runs.log_examples - mean, seed_noise * hazard)
        weight = 1 / np.sqrt(1 + (off / seed_noise) ** 2)
        slope = -shape / (1 + shape)  # of the mean along log B_c; along log E_min it is 1
        s0, s1, s2 = weight.sum(1), (weight * slope).sum(1), (weight * slope**2).sum(1) + NEWTON_RIDGE
        r0, r1 = (weight * off).sum(1), (weight * slope * off).sum(1)
        along = np.clip((s0 * r1 - s1 * r0) / (s0 * s2 - s1**2), -1, 1)
        critical = np.clip(points[:, 1] + along, *bounds)
        least = points[:, 0] + (r0 - s1 * (critical - points[:, 1])) / s0
        points = np.stack([least, critical], 1)
    return points


def negative_log_likelihood(runs: RunArrays, seed_noise: float, points: FloatArray) -> FloatArray:
    """Twice the negative log likelihood, soft-L1 for runs that reached the target."""
    off = (runs.log_examples - log_examples(runs.batch, points[:, :1], points[:, 1:])) / seed_noise
    each = np.where(runs.reached, 2 * (np.sqrt(1 + off**2) - 1), -2 * log_ndtr(-off))
    return np.asarray(each.sum(1))


def bootstrap_runs(runs: RunArrays, seed_noise: float, lack_of_fit_sd: float, draw_index: int) -> RunArrays:
    """Runs as they might have come out.

    Those of a batch are drawn anew, or moved by the noise where they are fewer than three; then the
    batch is moved as a whole by what the hyperbola lacks.
    """
    rng = np.random.default_rng(draw_index)
    starts = np.flatnonzero(np.diff(runs.batch, prepend=-1.0))
    picked, moved = [], []
    for first, last in zip(starts, [*starts[1:], len(runs.batch)], strict=True):
        few = last - first < 3
        picked.append(np.arange(first, last) if few else rng.integers(first, last, last - first))
        moved.append(lack_of_fit_sd * rng.standard_normal() + few * seed_noise * rng.standard_normal(last - first))
    chosen = np.concatenate(picked)
    reached = runs.reached[chosen]
    return RunArrays(runs.batch[chosen], runs.log_examples[chosen] + np.concatenate(moved) * reached, reached)
