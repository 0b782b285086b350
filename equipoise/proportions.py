"""Intervals of a share of examples, such as an accuracy."""

import math

from scipy.special import ndtri

Z_95 = float(ndtri(0.975))  # standard errors on either side of a 95 % interval


def wilson_interval(share: float, count: float) -> tuple[float, float]:
    """Return the ends of the 95 % Wilson score interval of a share measured on `count` examples, at least 1.

    The same as that of scipy's `binomtest`, which refuses fractions: effective sample sizes are such counts.
    """
    share, count = float(share), max(float(count), 1.0)
    square = Z_95**2 / count
    middle = (share + square / 2) / (1 + square)
    reach = Z_95 * math.sqrt(share * (1 - share) / count + square / count / 4) / (1 + square)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)
