"""Section of plan.json on the examples to the target: the critical batch, and predictions at each global batch."""

from collections.abc import Iterable

import numpy as np

from equipoise.planning.examples_to_target import ExamplesCurve
from equipoise.planning.interval import IntervalEstimate
from equipoise.planning.sections.examples_types import ExamplesPrediction, ExamplesSection
from equipoise.planning.step_time_fit import INTERVAL_QUANTILES


def build_statistical_section(curve: ExamplesCurve, extra_batches: Iterable[int]) -> ExamplesSection:
    """Build the section on examples to the target: predictions at each measured and each extra batch."""
    batches = sorted({*map(int, curve.batch_summary.index), *extra_batches})
    return ExamplesSection(
        identifiable=curve.identifiable,
        critical_batch=interval_to_estimate(curve.critical_batch) if curve.identifiable else None,
        min_examples=interval_to_estimate(curve.min_examples),
        left_out=tuple(map(int, curve.left_out_batches)),
        predictions=tuple(predict_examples(curve, batch) for batch in batches),
    )


def predict_examples(curve: ExamplesCurve, global_batch: int) -> ExamplesPrediction:
    """Predict the examples to the target and the learning rate at a global batch."""
    draws = curve.sample_examples(global_batch)
    low, high = (None, None) if draws is None else map(float, np.quantile(draws, INTERVAL_QUANTILES))
    return ExamplesPrediction(
        global_batch=global_batch,
        examples=curve.examples_at(global_batch),
        low=low,
        high=high,
        lr=curve.lr_at(global_batch),
    )


def interval_to_estimate(values: tuple[float, float, float] | None) -> IntervalEstimate | None:
    """Return a value and its interval as an estimate, or None without one."""
    return None if values is None else IntervalEstimate(**dict(zip(("value", "low", "high"), values, strict=True)))
