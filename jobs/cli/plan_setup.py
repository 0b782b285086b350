"""Refuse a plan that was measured with other data, another model or other options than the run it is given to."""

import sys
from dataclasses import dataclass
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.confirmation import PlanStatus
from equipoise.planning.training_setup import TrainingSetup, compare_targets
from equipoise.workloads import Workload
from jobs.cli.describe_setup import describe_training_setup
from jobs.cli.plan_options import read_recommended_plan


@dataclass(frozen=True, kw_only=True)
class MeasuredPlan:
    """Part of plan.json that says what its measurements were taken with."""

    setup: TrainingSetup | None = None
    status: PlanStatus = "not confirmed"


def require_same_setup(location: Path, config: TrainConfig, workload: Workload) -> HardwareFacts | None:
    """Refuse the plan at a location if its setup differs from that of a run; return the machine it was measured on.

    Plans of tables alone have no setup. A message says that a plan was refuted, or that no run has confirmed it.
    """
    plan = read_recommended_plan(location, MeasuredPlan)
    if plan.status != "confirmed":
        label = "warning" if plan.status == "refuted" else "note"
        print(f"{label}: the plan at {location} is {describe_status(plan.status)}", file=sys.stderr)
    planned = plan.setup
    if planned is None:
        return None
    setup = describe_training_setup(config, workload, HardwareFacts())
    if differences := planned.differences(setup):
        raise EquipoiseError(
            "plan-mismatch",
            f"cannot apply --plan {location}: it was measured with {'; '.join(differences)}",
            "give the run the same options, or find its own plan with jobs.sweep",
        )
    if note := compare_targets(planned, setup):
        print(f"note: {note}", file=sys.stderr)
    return planned.machine


def describe_status(status: PlanStatus) -> str:
    """Return in words what the status of a plan means for a run with it."""
    if status == "refuted":
        return "refuted: a training run with it missed the target or took longer than predicted; find another"
    return "not confirmed: no training run has been made with it yet"
