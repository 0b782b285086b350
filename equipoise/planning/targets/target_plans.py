"""Critical batch and plan of each of several targets that the same training runs have passed."""

import numpy as np
import pandas as pd

from equipoise.planning.document import PlanDocument, PlanOptionEntry, TargetPlan
from equipoise.planning.examples_to_target import ExamplesCurve, fit_examples_curve
from equipoise.planning.targets.batch_schedule import BatchSchedule, StageCandidate, plan_batch_schedule

TargetCurve = tuple[float, ExamplesCurve]
"""value of a target, and the fit of the examples to it"""


def find_hardest_target(crossings: pd.DataFrame) -> float:
    """Return the last target of a table of runs to several targets."""
    return float(crossings.target.iloc[-1])


def fit_easier_targets(crossings: pd.DataFrame) -> list[TargetCurve]:
    """Fit a curve to the rows of each target but the last, in the order of the table."""
    targets = crossings.target.unique().tolist()
    return [
        (target, fit_examples_curve(crossings[crossings.target == target].reset_index(drop=True)))
        for target in targets[:-1]
    ]


def build_target_plan(target: float, curve: ExamplesCurve, document: PlanDocument) -> TargetPlan:
    """Build the entry of a target from the curve to it and the document of its plan."""
    fit = document.statistical
    return TargetPlan(
        target=target,
        critical_batch=fit.critical_batch if fit else None,
        min_examples=fit.min_examples if fit else None,
        reached=int(curve.best_lr_runs.reached.sum()),
        plan=document.plan,
    )


def build_batch_schedule(curves: list[TargetCurve], document: PlanDocument) -> BatchSchedule | None:
    """Build the schedule through all targets, from the settings that were measured and the plan; None without a plan.

    Targets for which the examples of the plan's batch are unknown are left out.
    """
    plan = document.plan
    if plan is None:
        return None
    curves = [(target, curve) for target, curve in curves if curve.examples_at(plan.global_batch) is not None]
    constant = build_candidate(plan, curves)
    measured = [build_candidate(option, curves) for option in document.options if option.measured]
    if constant is None:
        return None
    return plan_batch_schedule(
        [target for target, _ in curves], constant, [candidate for candidate in measured if candidate]
    )


def build_candidate(option: PlanOptionEntry, curves: list[TargetCurve]) -> StageCandidate | None:
    """Build the candidate of a setting; None if the examples of its batch to one of the targets are unknown."""
    batch = option.global_batch
    examples = [curve.examples_at(batch) for _, curve in curves]
    draws = [curve.sample_examples(batch) for _, curve in curves]
    known_examples = [value for value in examples if value is not None]
    known_draws = [values for values in draws if values is not None]
    if len(known_draws) < len(curves):
        return None
    return StageCandidate(
        nodes=option.nodes,
        workers=option.workers,
        batch=option.batch,
        step_seconds=option.step.seconds,
        lrs=tuple(curve.lr_at(batch) for _, curve in curves),
        examples=np.array(known_examples),
        example_draws=np.stack(known_draws),
    )
