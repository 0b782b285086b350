"""The option --plan: find and check a plan.json, and apply its settings to the options of training."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from equipoise.errors import EquipoiseError
from equipoise.number_bounds import Count, PositiveNumber
from equipoise.planning.document import PLAN_FILE
from equipoise.storage.atomic import read_json
from equipoise.storage.json_decoding import decode_json_value

OptionsT = TypeVar("OptionsT")
DocumentT = TypeVar("DocumentT")

PLAN_OPTION_WORDS = {
    "workers": "workers",
    "batch_size": "examples per worker",
    "grad_accumulation": "micro-steps",
    "lr": "as the learning rate",
}
PLAN_REMEDY = "give the plan.json of a sweep or of jobs.plan"


@dataclass(frozen=True, kw_only=True)
class PlanOutline:
    """Parts of plan.json that say whether it recommends a plan, and why not."""

    plan: dict[str, object] | None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Settings of a plan that training takes; it needs none of its predictions."""

    workers: Count
    batch: Count
    global_batch: Count
    lr: PositiveNumber | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """Part of plan.json that training takes."""

    plan: PlanSettings


def apply_plan(options: OptionsT, arguments: list[str] | None = None) -> OptionsT:
    """Return the options with the settings of their plan; `arguments` is the command line, sys.argv[1:] if not given.

    Refuse an option on the command line that contradicts the plan: its prediction holds only for all its settings
    together.
    """
    path: Path | None = getattr(options, "plan", None)
    if path is None:
        return options
    flags = {argument.partition("=")[0] for argument in (sys.argv[1:] if arguments is None else arguments)}
    plan = read_plan_settings(path)
    for name, value in plan.items():
        if f"--{name.replace('_', '-')}" in flags and (other := getattr(options, name)) != value:
            raise EquipoiseError(
                "option-conflict",
                f"cannot apply --plan {path}: it has {value:g} {PLAN_OPTION_WORDS[name]}"
                f" and --{name.replace('_', '-')} asks for {other:g}",
                "leave out one of the two",
            )
    changes = {name: value for name, value in plan.items() if f"--{name.replace('_', '-')}" not in flags}
    return replace(options, **changes)  # type: ignore[type-var] # options are dataclasses


def read_plan_settings(path: Path) -> dict[str, int | float]:
    """Read the options of training that a plan sets, by their names."""
    plan = read_recommended_plan(path, TrainingPlan).plan
    accumulation, remainder = divmod(plan.global_batch, plan.workers * plan.batch)
    if remainder or not accumulation:
        raise EquipoiseError(
            "plan-invalid",
            f"cannot use --plan {path}: its global batch of {plan.global_batch} is not a multiple of"
            f" {plan.workers} workers x {plan.batch} examples",
            PLAN_REMEDY,
        )
    settings: dict[str, int | float] = {
        "workers": plan.workers,
        "batch_size": plan.batch,
        "grad_accumulation": accumulation,
    }
    return settings if plan.lr is None else settings | {"lr": plan.lr}


def read_recommended_plan(location: Path, kind: type[DocumentT]) -> DocumentT:
    """Read plan.json, or the one in the folder of a sweep, as a `kind`; refuse one that recommends no plan."""
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
    foreign = f"{problem}: it was not written by jobs.plan or jobs.sweep"
    outline = decode_json_value(contents, PlanOutline, code="plan-missing", problem=foreign, remedy=PLAN_REMEDY)
    if outline.plan is None:
        reason = "; ".join(outline.warnings) or "measure more"
        raise EquipoiseError("plan-missing", f"{problem}: it recommends no plan: {reason}")
    return decode_json_value(contents, kind, code="plan-invalid", problem=problem, remedy=PLAN_REMEDY)
