"""Fits of exact sums and the settings that they predict, against which other ways of exchange are compared."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from equipoise.planning.build_document import PlanRequest, fit_step_times, list_cluster_shapes
from equipoise.planning.examples_to_target import ExamplesCurve, fit_examples_curve
from equipoise.planning.plan import (
    PlanOption,
    enumerate_options,
    list_candidate_batches,
    put_measured_first,
    rank_options,
)
from equipoise.planning.step_time_fit import StepTimeFit
from equipoise.planning.step_time_model import StepSettings
from equipoise.type_aliases import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactFits:
    """Best plan with exact sums, and the settings at which other ways of exchange may be tried."""

    step_fit: StepTimeFit = field(repr=False)
    """fit of the step times"""
    curve: ExamplesCurve = field(repr=False)
    """fit of the examples to the target"""
    plan: PlanOption
    """best setting with exact sums"""
    options: tuple[PlanOption, ...] = field(repr=False)
    """settings of several workers whose global batch was tried with exact sums"""
    alone: tuple[PlanOption, ...] = field(default=(), repr=False)
    """settings of one worker, which exchanges nothing"""

    @property
    def settings(self) -> StepSettings:
        """Settings of `options` as arrays."""
        columns = zip(*((option.nodes, option.workers, option.batch) for option in self.options), strict=True)
        return StepSettings(*(np.array(column, float) for column in columns))

    @property
    def examples(self) -> FloatArray:
        """Examples to the target at each of `options`, with exact sums."""
        return np.array([option.examples for option in self.options])

    @property
    def global_batches(self) -> FloatArray:
        """Examples per step at each of `options`."""
        return np.array([option.global_batch for option in self.options], float)

    @property
    def reference(self) -> PlanOption:
        """Setting with exact sums that another way of exchange must beat: the fastest of all that are known."""
        return min((self.plan, *self.options), key=lambda option: option.seconds)


def fit_exact_sums(
    request: PlanRequest, step_fit: StepTimeFit | None = None, curve: ExamplesCurve | None = None
) -> ExactFits | None:
    """Fit the tables of a request, whose rows all have exact sums; None if nothing else can be compared with them.

    Fits that are known already need not be made again.
    """
    if request.system is None or request.statistical is None:
        return None
    step_fit = step_fit or fit_step_times(request)
    curve = curve or fit_examples_curve(request.statistical)
    if step_fit is None:
        return None
    shapes = list_cluster_shapes(step_fit, request.cluster_shapes)
    batches = list_candidate_batches(step_fit, curve) | {*request.global_batches}
    options = enumerate_options(step_fit, curve, shapes, batches)
    options = [option for option in options if (option.global_batch, option.lr) not in request.excluded_settings]
    ranked = rank_options(options, request.deadline_seconds, request.budget_worker_seconds)
    if not ranked:
        return None
    plan = put_measured_first(ranked, by_cost=request.deadline_seconds is not None)[0]
    comparable = select_comparable_options(options, curve)
    if not comparable:
        return None
    alone = tuple(option for option in options if option.workers == 1)
    return ExactFits(step_fit=step_fit, curve=curve, plan=plan, options=comparable, alone=alone)


def select_comparable_options(options: Sequence[PlanOption], curve: ExamplesCurve) -> tuple[PlanOption, ...]:
    """Return the options of several workers at global batches with runs, with which others can be paired."""
    batches = {*curve.batch_summary.index} - {*curve.left_out_batches}
    return tuple(option for option in options if option.workers > 1 and option.global_batch in batches)
