"""Errors of a model that predicts a number, and the interval that its predictions come with.

Split-conformal (Lei et al., Distribution-Free Predictive Inference for Regression, 2018): the half-width is the
ceil((n + 1) * level)-th smallest absolute error on n rows that the model was not trained on. A new row like these is
within it with at least that probability, whatever the distribution.
"""

import math
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from equipoise.number_bounds import FiniteNumber, NonNegativeNumber
from equipoise.type_aliases import FloatArray

INTERVAL_LEVEL = 0.9

Share = Annotated[float, Meta(ge=0, le=1)]


class RegressionEvaluation(Struct, frozen=True, kw_only=True, tag_field="type", tag="regression"):
    """Errors of predicted numbers on the test split, and the width of their interval."""

    r2: FiniteNumber
    """share of the variance of the test split that is predicted"""
    rmse: NonNegativeNumber
    """root of the mean squared error on the test split, in the unit of the label"""
    level: Share = INTERVAL_LEVEL
    """share of new rows whose label the interval is to contain"""
    half_width: NonNegativeNumber | None
    """half of the width of the interval around a prediction, from the errors on the validation split; None if that
    split has too few rows"""
    coverage: Share | None
    """share of the test split whose label the interval contains; None without an interval"""


def conformal_half_width(errors: FloatArray, level: float = INTERVAL_LEVEL) -> float | None:
    """Return the half-width of the interval that contains a share `level` of new labels; None if rows are too few."""
    rank = math.ceil((len(errors) + 1) * level)
    return float(np.sort(np.abs(errors))[rank - 1]) if rank <= len(errors) else None


def evaluate_regression(r2: float, test_errors: FloatArray, validation_errors: FloatArray) -> RegressionEvaluation:
    """Evaluate predicted numbers from their errors in the unit of the label."""
    half_width = conformal_half_width(validation_errors)
    return RegressionEvaluation(
        r2=r2,
        rmse=float(np.sqrt(np.square(test_errors).mean())),
        half_width=half_width,
        coverage=None if half_width is None else float((np.abs(test_errors) <= half_width).mean()),
    )
