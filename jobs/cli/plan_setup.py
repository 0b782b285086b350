"""Refuse a plan that was measured with other data, another model or other options than the run it is given to."""

import sys
from dataclasses import dataclass
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.training_setup import TrainingSetup, compare_targets
from equipoise.workloads import Workload
from jobs.cli.describe_setup import describe_training_setup
from jobs.cli.plan_options import read_recommended_plan


@dataclass(frozen=True, kw_only=True)
class MeasuredPlan:
    """Part of plan.json that says what its measurements were taken with."""

    setup: TrainingSetup | None = None


def require_same_setup(location: Path, config: TrainConfig, workload: Workload) -> HardwareFacts | None:
    """Refuse the plan at a location if its setup differs from that of a run; return the machine it was measured on.

    Plans of tables alone have no setup.
    """
    planned = read_recommended_plan(location, MeasuredPlan).setup
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
