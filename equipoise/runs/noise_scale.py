"""The gradient noise scale: how many examples a batch may hold before they repeat each other.

McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, appendix A: from
squared gradient norms at two batch sizes, both at the same weights,

    E |g_b|^2 = |G|^2 + tr(Sigma) / b

It is good to an order of magnitude and moves by orders within a run: it tells where to
look next and is never the answer.
"""

from typing import NamedTuple


class NoiseTerms(NamedTuple):
    """Both are unbiased, so single draws may be negative: average them, divide last."""

    signal: float
    """|G|^2, the squared norm of the true gradient"""
    variance: float
    """tr(Sigma), the summed variance of one example's gradient"""


def estimate_noise_terms(local_norm: float, total_norm: float, local_batch: float, total_batch: float) -> NoiseTerms:
    """The two terms from mean squared norms over `small` and over `big` examples.

    `local` is the mean over workers of |g_i|^2, each g_i a mean over `small` examples;
    `total` is |g|^2 for their mean over `big`. Where workers hold unequal shares,
    `small` is the harmonic mean of the shares. Draws without replacement from a finite
    set give the terms of the population that the set was drawn from: tr(Sigma) with
    N - 1 in the denominator, and |G|^2 less tr(Sigma) / N.
    """
    if not 0 < local_batch < total_batch:
        raise ValueError(f"the noise scale needs two batch sizes, small below big, got {local_batch} and {total_batch}")
    return NoiseTerms(
        signal=(total_batch * total_norm - local_batch * local_norm) / (total_batch - local_batch),
        variance=(local_norm - total_norm) / (1 / local_batch - 1 / total_batch),
    )


def noise_scale_from_terms(signal: float, variance: float) -> float | None:
    """The noise scale in examples, or None where the draws were too few to tell the gradient from noise."""
    return variance / signal if signal > 0 and variance > 0 else None
