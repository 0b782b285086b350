"""Gradient noise scale: the number of examples in a batch beyond which further ones become redundant.

McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, appendix A: from
squared gradient norms at two batch sizes, both at the same weights,

    E |g_b|^2 = |G|^2 + tr(Sigma) / b

It is good to an order of magnitude and changes by orders within a run: it suggests which batch to try
next, and does not replace the measurement.
"""

from typing import NamedTuple

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError


class NoiseTerms(NamedTuple):
    """Two unbiased terms of the noise scale; single draws may be negative, so average them and divide last."""

    signal: float
    """|G|^2, the squared norm of the true gradient"""
    variance: float
    """tr(Sigma), the summed variance of one example's gradient"""


def estimate_noise_terms(local_norm: float, total_norm: float, local_batch: float, total_batch: float) -> NoiseTerms:
    """Estimate the two terms from squared gradient norms over `local_batch` and over `total_batch` examples.

    `local_norm` is the mean over workers of |g_i|^2, where each g_i is a mean over `local_batch` examples;
    `total_norm` is |g|^2 of their mean over `total_batch`. Where workers hold unequal shares, `local_batch` is
    the harmonic mean of the shares. Draws without replacement from a finite set give the terms of the population
    that the set was drawn from: tr(Sigma) with N - 1 in the denominator, and |G|^2 less tr(Sigma) / N.
    """
    if not 0 < local_batch < total_batch:
        raise EquipoiseError(
            "run-damaged",
            "cannot estimate the noise scale: it needs two batch sizes, local_batch below total_batch,"
            f" got {local_batch} and {total_batch}",
        )
    return NoiseTerms(
        signal=(total_batch * total_norm - local_batch * local_norm) / (total_batch - local_batch),
        variance=(local_norm - total_norm) / (1 / local_batch - 1 / total_batch),
    )


def noise_scale_from_terms(signal: float, variance: float) -> float | None:
    """Return the noise scale in examples, or None if the draws were too few to separate the gradient from noise."""
    return variance / signal if signal > 0 and variance > 0 else None


def explain_missing_noise_scale(config: TrainConfig, draws: int) -> str:
    """Return why a run with so many measurements has no noise scale."""
    sync = config.sync_method
    reasons = (
        (config.command, "the program does not show its gradients"),
        (sync.is_local, "workers have weights of their own between two averages"),
        (sync.has_store, "servers see the gradients of different weights"),
        (config.compression != "none", "workers send compressed gradients"),
        (draws, "its measurements are too few to tell it from noise"),
    )
    return next((reason for applies, reason in reasons if applies), "no step was measured")
