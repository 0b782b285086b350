"""Fit of the examples to the target as a hyperbola over the global batch B.

    E(B) = E_min * (1 + B / B_c)

E_min is the number of examples that infinitely many small steps need. B_c is the critical batch: there
half of every example is wasted (McCandlish et al., 2018). A run that was cut off at its cap is known to
need more examples than the cap, and enters the likelihood as a censored observation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_ndtr

from equipoise.planning.setting_runs import normal_hazard
from equipoise.type_aliases import FloatArray

SEARCH_MARGIN_LOGS = 5.0  # natural logs beyond the measured batches within which the critical batch is searched
GAUSS_NEWTON_STEPS = 50
NEWTON_RIDGE = 1e-9  # keeps the Gauss-Newton steps finite where the curve is flat


def log_examples(
    batch: FloatArray, log_min_examples: FloatArray | float, log_critical_batch: FloatArray | float
) -> FloatArray:
    """Return the natural log of the examples to the target at each global batch."""
    return np.asarray(log_min_examples + np.log1p(batch / np.exp(log_critical_batch)))


class RunArrays(NamedTuple):
    """Runs as arrays, ordered by global batch: the last axis is over runs, axes before it are over draws."""

    batch: FloatArray
    log_examples: FloatArray
    """natural log of the examples that each run has seen"""
    reached: NDArray[np.bool_]

    @classmethod
    def from_table(cls, table: pd.DataFrame) -> "RunArrays":
        """Build the arrays from a table with the columns global_batch, examples and reached."""
        table = table.sort_values("global_batch")
        logs = np.log(table.examples.to_numpy(float))
        return cls(table.global_batch.to_numpy(float), logs, table.reached.to_numpy() == 1)

    @classmethod
    def stack(cls, draws: Sequence["RunArrays"]) -> "RunArrays":
        """Stack draws of equally many runs, one row per draw."""
        batch, logs, reached = zip(*draws, strict=True)
        return cls(np.stack(batch), np.stack(logs), np.stack(reached))


def fit_hyperbola(runs: RunArrays, seed_noise: float) -> tuple[float, float]:
    """Return the log E_min and log B_c that maximise the robust likelihood, the best of six starts."""
    low, high = np.log(runs.batch.min()) - SEARCH_MARGIN_LOGS, np.log(runs.batch.max()) + SEARCH_MARGIN_LOGS
    starts = np.array([(runs.log_examples.min(), middle) for middle in np.linspace(low + 2, high - 2, 6)])
    copies = RunArrays.stack([runs] * len(starts))
    optima = gauss_newton(copies, seed_noise, starts, (low, high))
    log_min_examples, log_critical = optima[np.argmin(negative_log_likelihood(copies, seed_noise, optima))]
    return float(log_min_examples), float(log_critical)


def gauss_newton(runs: RunArrays, seed_noise: float, points: FloatArray, bounds: tuple[float, float]) -> FloatArray:
    """Run Gauss-Newton from one point (log E_min, log B_c) per draw and return the optima; log B_c stays in bounds.

    Weights make the loss soft-L1. A run that was cut off counts as what it needs on average,
    given that this is above its cap (expectation maximisation).
    """
    for _ in range(GAUSS_NEWTON_STEPS):
        ratio = runs.batch / np.exp(points[:, 1:])  # B / B_c
        mean = points[:, :1] + np.log1p(ratio)
        deviation = (runs.log_examples - mean) / seed_noise
        residual = np.where(runs.reached, runs.log_examples - mean, seed_noise * normal_hazard(deviation))
        weight = 1 / np.sqrt(1 + (residual / seed_noise) ** 2)
        slope = -ratio / (1 + ratio)  # derivative of the mean by log B_c; by log E_min it is 1
        s0, s1, s2 = weight.sum(1), (weight * slope).sum(1), (weight * slope**2).sum(1) + NEWTON_RIDGE
        r0, r1 = (weight * residual).sum(1), (weight * slope * residual).sum(1)
        step = np.clip((s0 * r1 - s1 * r0) / (s0 * s2 - s1**2), -1, 1)
        log_critical = np.clip(points[:, 1] + step, *bounds)
        log_min_examples = points[:, 0] + (r0 - s1 * (log_critical - points[:, 1])) / s0
        points = np.stack([log_min_examples, log_critical], 1)
    return points


def negative_log_likelihood(runs: RunArrays, seed_noise: float, points: FloatArray) -> FloatArray:
    """Return twice the negative log likelihood of each draw, soft-L1 for runs that reached the target."""
    residual = (runs.log_examples - log_examples(runs.batch, points[:, :1], points[:, 1:])) / seed_noise
    terms = np.where(runs.reached, 2 * (np.sqrt(1 + residual**2) - 1), -2 * log_ndtr(-residual))
    return np.asarray(terms.sum(1))


def bootstrap_runs(runs: RunArrays, seed_noise: float, lack_of_fit_sd: float, draw_index: int) -> RunArrays:
    """Return one bootstrap draw of the runs, seeded by its index.

    Three or more runs of a batch are resampled; fewer are moved by the seed noise instead. All runs of a
    batch are then shifted together by the lack of fit of the hyperbola.
    """
    rng = np.random.default_rng(draw_index)
    starts = np.flatnonzero(np.diff(runs.batch, prepend=-1.0))
    indices, shifts = [], []
    for first, last in zip(starts, [*starts[1:], len(runs.batch)], strict=True):
        is_small = last - first < 3
        indices.append(np.arange(first, last) if is_small else rng.integers(first, last, last - first))
        shifts.append(
            lack_of_fit_sd * rng.standard_normal() + is_small * seed_noise * rng.standard_normal(last - first)
        )
    chosen = np.concatenate(indices)
    reached = runs.reached[chosen]
    return RunArrays(runs.batch[chosen], runs.log_examples[chosen] + np.concatenate(shifts) * reached, reached)
