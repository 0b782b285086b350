"""The option --plan of training: take workers, batch size, accumulation and learning rate from a plan.json."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from equipoise.errors import EquipoiseError
from equipoise.planning.measurements import COUNT_COLUMN, MAX_COUNT
from equipoise.runs.record import is_finite_number
from equipoise.storage.atomic import read_json
from equipoise.storage.retry import StoreUnavailable

OptionsT = TypeVar("OptionsT")

PLAN_OPTION_WORDS = {
    "workers": "workers",
    "batch_size": "examples per worker",
    "grad_accumulation": "micro-steps",
    "lr": "as the learning rate",
}


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


def read_plan_settings(path: Path) -> dict[str, Any]:
    """Read the training settings of a plan from plan.json, or from the folder of a sweep that holds it."""
    file = path / "plan.json" if path.is_dir() else path
    try:
        facts = read_json(file)
    except FileNotFoundError:
        raise EquipoiseError(
            "path-missing",
            f"no plan at {file}",
            "give the plan.json of a sweep; a submitted job needs an absolute path that its nodes share,"
            " because files that .rayignore names are not uploaded",
        ) from None
    except StoreUnavailable:
        raise
    except OSError as error:
        raise EquipoiseError("path-access", f"cannot read {file}: {error}", "give the plan.json of a sweep") from None
    plan = facts.get("plan", ...) if isinstance(facts, dict) else ...
    if plan is None:
        warnings = facts.get("warnings")
        reason = "; ".join(map(str, warnings)) if isinstance(warnings, list) else "measure more"
        raise EquipoiseError("plan-missing", f"{file} has no plan: {reason}")
    if not isinstance(plan, dict):
        raise EquipoiseError(
            "plan-missing",
            f"cannot read {file}: it was not written by jobs.plan or jobs.sweep",
            "give the plan.json of a sweep",
        )
    workers, batch, global_batch = (require_count(file, plan, name) for name in ("workers", "batch", "global_batch"))
    lr = plan.get("lr")
    if lr is not None and not (is_finite_number(lr) and 0 < lr < float("inf")):
        raise EquipoiseError("plan-invalid", f"{file}: plan.lr must be a number above 0, or null, got {lr!r}")
    accumulation, remainder = divmod(global_batch, workers * batch)
    if remainder or not accumulation:
        raise EquipoiseError(
            "plan-invalid",
            f"cannot use {file}: its global batch of {global_batch} is not a multiple of {workers} workers x {batch}"
            " examples",
            "give the plan.json of a sweep",
        )
    settings = {"workers": workers, "batch_size": batch, "grad_accumulation": accumulation}
    return settings if lr is None else settings | {"lr": lr}


def require_count(file: Path, plan: dict[str, Any], name: str) -> int:
    """Return one of the plan's whole numbers; refuse anything else."""
    value = plan.get(name)
    if not is_finite_number(value) or value % 1 or not 1 <= value <= MAX_COUNT:
        raise EquipoiseError("plan-invalid", f"{file}: plan.{name} must be {COUNT_COLUMN.description}, got {value!r}")
    return int(value)
