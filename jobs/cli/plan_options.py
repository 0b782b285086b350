"""The option --plan: find and check a plan.json, and apply its settings to the options of training."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.formatting import format_flag
from equipoise.planning.document import PLAN_FILE, PlanDocument, PlanEntry, is_plan
from equipoise.planning.exchanges.exchange_name import parse_exchange
from equipoise.planning.exchanges.training_options import find_exchange_options
from equipoise.planning.training_setup import TrainingSetup, format_value
from equipoise.storage.atomic import read_json

OptionsT = TypeVar("OptionsT")

EXCHANGE_OPTIONS = ("all_reduce", "sync", "compression", "servers", "sharding", "momentum")
PLAN_REMEDY = "give the plan.json of equipoise sweep or equipoise plan"


class RecommendedPlan(NamedTuple):
    """Contents of plan.json that recommend a plan, and this plan."""

    document: PlanDocument
    plan: PlanEntry


def apply_plan(options: OptionsT, arguments: list[str] | None = None) -> OptionsT:
    """Return the options with the settings of their plan; `arguments` is the command line, sys.argv[1:] if not given.

    Refuse an option on the command line that contradicts the plan: its prediction holds only for all its settings
    together.
    """
    path: Path | None = getattr(options, "plan", None)
    if path is None:
        return options
    tokens = sys.argv[1:] if arguments is None else arguments
    flags = {token.partition("=")[0].replace("_", "-") for token in tokens if token.startswith("--")}  # as parsed
    document, plan = read_recommended_plan(path)
    settings = list_plan_settings(plan)
    if getattr(options, "command", None) is not None:
        require_exact_plan(path, plan)
        settings = {name: value for name, value in settings.items() if name not in EXCHANGE_OPTIONS}
    for name, value in settings.items():
        if format_flag(name) in flags and (other := getattr(options, name)) != value:
            planned, given = (format_settings({name: setting}) for setting in (value, other))
            raise EquipoiseError(
                "option-conflict",
                f"cannot apply --plan {path}: it has {planned}, and the command line has {given}",
                f"leave out {format_flag(name)} or --plan",
            )
    changes = {name: value for name, value in settings.items() if format_flag(name) not in flags}
    options = replace(options, **changes)  # type: ignore[type-var] # options are dataclasses
    if note := describe_unplanned_sharding(plan, getattr(options, "sharding", "none")):
        print(f"note: {note}", file=sys.stderr, flush=True)
    return take_target_of_command(options, document.setup)


def describe_unplanned_sharding(plan: PlanEntry, sharding: str) -> str:
    """Return a sentence on the times of a plan of whole models that a run divides; "" where it divides none."""
    if sharding == "none" or plan.sharding != "none":
        return ""  # another one than that of the plan is refused
    return f"the times of the plan are of whole models: with --sharding {sharding} the steps take other times"


def take_target_of_command(options: OptionsT, planned: TrainingSetup | None) -> OptionsT:
    """Return the options of a command without --target with that of its plan: unlike a workload it has none itself."""
    if planned is None or getattr(options, "command", None) is None or getattr(options, "target", None) is not None:
        return options
    return replace(options, target=planned.target, lower_is_better=planned.lower_is_better)  # type: ignore[type-var]


def list_plan_settings(plan: PlanEntry) -> dict[str, int | float | str]:
    """Return the options of training that a plan sets, by their names."""
    settings: dict[str, int | float | str] = {
        "workers": plan.workers,
        "batch_size": plan.batch,
        "grad_accumulation": plan.global_batch // (plan.workers * plan.batch),
    }
    if plan.lr is not None:
        settings["lr"] = plan.lr
    if plan.momentum is not None:
        settings["momentum"] = plan.momentum
    return settings | find_exchange_options(parse_exchange(plan.exchange), "cannot apply the plan")


def require_exact_plan(location: Path, plan: PlanEntry) -> None:
    """Refuse a plan for a command with another way of exchange than exact sums: a command exchanges in its own way."""
    if not parse_exchange(plan.exchange).is_exact:
        raise EquipoiseError(
            "plan-invalid",
            f"cannot apply --plan {location} to a --command: it exchanges by {plan.exchange}, and the command in its"
            " own way",
            "plan with the rows of exact sums alone, whose column exchange is empty",
        )


def require_planned_settings(location: Path, plan: PlanEntry, run_folder: Path, config: TrainConfig) -> None:
    """Refuse a run that was not trained with the settings of a plan."""
    settings = list_plan_settings(plan)
    if all(getattr(config, name) == value for name, value in settings.items()):
        return
    run_settings = {name: getattr(config, name) for name in settings}
    raise EquipoiseError(
        "plan-mismatch",
        f"cannot publish --run {run_folder} with --plan {location}: the plan has {format_settings(settings)}, and the"
        f" run was trained with {format_settings(run_settings)}",
        "give the run that equipoise train --plan made of it, or leave out --plan",
    )


def format_settings(settings: dict[str, int | float | str]) -> str:
    """Format settings of training as the options that ask for them."""
    return " ".join(f"{format_flag(name)} {format_value(value)}" for name, value in settings.items())


def require_trained_exchange(exchange: str, problem: str) -> None:
    """Refuse the plan of a way of exchange that training does not have; the message begins with `problem`."""
    try:
        find_exchange_options(parse_exchange(exchange), problem)
    except EquipoiseError as error:
        raise EquipoiseError(
            "plan-invalid",
            f"{problem}: it exchanges by {exchange}, and training has no such way of exchange",
            "plan with the rows of exact sums alone, whose column exchange is empty",
        ) from error


def read_recommended_plan(location: Path) -> RecommendedPlan:
    """Read plan.json, or the one in the folder of a sweep; refuse one that recommends no plan."""
    file = location / PLAN_FILE if location.is_dir() else location
    try:
        contents = read_json(file)
    except FileNotFoundError:
        raise EquipoiseError(
            "path-missing",
            f"no plan at {file}",
            f"{PLAN_REMEDY}; a submitted job needs an absolute path that its nodes share, because files that .rayignore"
            " names are not uploaded",
        ) from None
    problem = f"cannot use --plan {location}"
    if not is_plan(contents):
        raise EquipoiseError(
            "plan-missing", f"{problem}: it is not a plan of equipoise sweep or equipoise plan", PLAN_REMEDY
        )
    document = PlanDocument.from_json(contents, problem, PLAN_REMEDY)
    if document.plan is None:
        reason = "; ".join(document.warnings) or "measure more"
        raise EquipoiseError("plan-missing", f"{problem}: it recommends no plan: {reason}")
    require_trained_exchange(document.plan.exchange, problem)
    return RecommendedPlan(document, document.plan)
