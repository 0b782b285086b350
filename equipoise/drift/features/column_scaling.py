"""Scaling of the numeric columns of a table by a reference: centre and standard deviation without its extremes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.type_aliases import AnyArray

EXTREME_SHARE = 0.001  # of the values at each end: they are pulled in, or one of them would set the scale
MAX_ABS_Z = 10.0  # standard deviations; values farther off say no more


@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """Centre and scale of each numeric column."""

    mean: NDArray[np.float64]
    """(columns,)"""
    scale: NDArray[np.float64]
    """(columns,) standard deviations; 1 for columns that are constant"""
    is_binary: NDArray[np.bool_]
    """(columns,) whether a column has at most two distinct values, of which a spread would say nothing"""

    def standardize(self, values: AnyArray) -> NDArray[np.float64]:
        """Return (n, columns): values in standard deviations from the centre, missing ones (NaN) as 0."""
        with np.errstate(over="ignore"):
            z = (np.asarray(values, np.float64) - self.mean) / self.scale
        return np.nan_to_num(np.clip(z, -MAX_ABS_Z, MAX_ABS_Z), nan=0.0)


def fit_column_scaling(values: AnyArray) -> ColumnScaling:
    """Fit the scaling to the values (n, columns) of a reference; missing values (NaN) are left out."""
    moments = [fit_column(column[np.isfinite(column)]) for column in np.asarray(values, np.float64).T]
    mean, scale, is_binary = (np.array([row[index] for row in moments]) for index in range(3))
    return ColumnScaling(mean.astype(np.float64), scale.astype(np.float64), is_binary.astype(bool))


def fit_column(values: NDArray[np.float64]) -> tuple[float, float, bool]:
    """Return mean and standard deviation of a column without its extremes, and whether it has at most two values."""
    if not len(values):
        return 0.0, 1.0, True
    inner = np.clip(values, *np.quantile(values, [EXTREME_SHARE, 1 - EXTREME_SHARE]))
    mean, deviation = float(inner.mean()), float(inner.std())
    is_binary = len(np.unique(values)) <= 2
    if is_binary:  # a value of one row in 10,000 is no extreme of a column of two values
        mean, deviation = float(values.mean()), float(values.std())
    return mean, deviation if deviation > 1e-9 * max(abs(mean), 1e-9) else 1.0, is_binary
