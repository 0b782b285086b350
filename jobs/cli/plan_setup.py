"""Refuse a plan that was measured with other data, another model or other options than the run it is given to."""

import sys
from dataclasses import replace
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_number, format_range, make_printable
from equipoise.hardware_facts import HardwareFacts
from equipoise.planning.confirmation import ConfirmationResult, find_run_of_plan
from equipoise.planning.document import PlanEntry
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.training_setup import OptionValue, TrainingSetup, describe_target_mismatch
from equipoise.runs.target import command_target
from equipoise.workloads import Workload
from jobs.cli.describe_setup import (
    describe_command_setup,
    describe_trained_setup,
    describe_training_setup,
)
from jobs.cli.plan_options import read_recommended_plan
from jobs.cli.sweep_setup import require_target


def require_same_setup(
    location: Path, config: TrainConfig, workload: Workload | None, run_has_ended: bool = False
) -> HardwareFacts | None:
    """Refuse the plan at a location if its setup differs from that of a run; return the machine it was measured on.

    The workload is None for a run of a command. Plans of tables alone have no setup. The initial weights of a run that
    has ended may be gone: they are not compared.
    A message says that a run has refuted the plan, or, before the first run with it, that none has been made yet.
    """
    if not run_has_ended:
        target = command_target(config) if workload is None else workload.run_target(config)
        require_target(target, f"cannot apply --plan {location} to {config.name}")
    document, plan = read_recommended_plan(location)
    planned_run = find_run_of_plan(plan, document.confirmations)
    if document.status != "confirmed" and not (run_has_ended and planned_run is None):
        print(format_unconfirmed(location, planned_run), file=sys.stderr)
    if plan.device and not run_has_ended:
        print(make_printable(format_device_note(location, plan.device)), file=sys.stderr)
    planned = document.setup
    if planned is None:
        return None
    if workload is None:
        setup = describe_command_setup(config, HardwareFacts())
    elif run_has_ended:
        setup = describe_trained_setup(config, workload, HardwareFacts(), planned.initial_weights)
    else:
        setup = describe_training_setup(config, workload, HardwareFacts())
    if differences := take_options_of_plan(planned, plan, config).differences(setup):
        raise EquipoiseError(
            "plan-mismatch",
            f"cannot apply --plan {location}: it was measured with {'; '.join(differences)}",
            "give the run the same options, or find its own plan with equipoise sweep and another --out",
        )
    if note := describe_target_mismatch(planned, setup):
        print(f"note: {note}", file=sys.stderr)
    return planned.machine


def take_options_of_plan(planned: TrainingSetup, plan: PlanEntry, config: TrainConfig) -> TrainingSetup:
    """Return the setup of a plan with the options that its way of exchange has in the place of those it names."""
    options: dict[str, OptionValue] = {} if plan.momentum is None else {"momentum": plan.momentum}
    if parse_exchange(plan.exchange).has_store:  # which sums in the place of any algorithm
        options["all_reduce"] = config.all_reduce
    return replace(planned, options=planned.options | options)


def format_device_note(location: Path, device: str) -> str:
    """Return a message that says for which kind of workers a plan is."""
    return (
        f"note: the plan at {location} is for workers on {device}: elsewhere its examples to the target hold, and its"
        " seconds do not"
    )


def format_unconfirmed(location: Path, run: ConfirmationResult | None) -> str:
    """Return a message that a plan is not confirmed, and that the last run with its settings refuted it, if any."""
    if run is None:
        return f"note: the plan at {location} is not confirmed: no training run has been made with it yet"
    missed = "missed the target" if run.seconds is None else f"took {format_number(run.seconds)} s"
    return (
        f"warning: the plan at {location} was refuted: a training run with its settings {missed} where"
        f" {format_range(run.predicted.low, run.predicted.high)} s were predicted;"
        " its prediction counts that run in now"
    )
