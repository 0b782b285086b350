"""Contents of plan.json on the examples to the target: the fit, and what it predicts."""

from dataclasses import dataclass

from equipoise.number_bounds import Count, LearningRate, NonNegativeNumber
from equipoise.planning.interval import IntervalEstimate


@dataclass(frozen=True, kw_only=True)
class ExamplesPrediction:
    """Predicted examples to the target at a global batch; None where measurements are missing for it."""

    global_batch: Count
    """examples per step of all workers"""
    examples: NonNegativeNumber | None
    """predicted examples to the target"""
    low: NonNegativeNumber | None
    """lower end of the 80 % interval"""
    high: NonNegativeNumber | None
    """upper end of the 80 % interval"""
    lr: LearningRate | None
    """learning rate that goes with this batch"""


@dataclass(frozen=True, kw_only=True)
class ExamplesSection:
    """Fit of the examples to the target and its predictions: at each measured global batch, and at those requested."""

    identifiable: bool
    """true if the runs show where the critical batch lies"""
    critical_batch: IntervalEstimate | None
    """critical batch in examples, at which twice `min_examples` are needed"""
    min_examples: IntervalEstimate | None
    """examples to the target at a very small batch"""
    left_out: tuple[Count, ...]
    """global batches that the fit leaves out"""
    predictions: tuple[ExamplesPrediction, ...]
    """examples at the global batches measured, and at those requested"""
