"""What a training takes of a plan: workers, batch, accumulation and rate, all of them or none."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from equipoise.planning.measurements import COUNT_COLUMN, MAX_COUNT
from equipoise.runs.record import is_finite_number
from equipoise.storage.atomic import read_json

OptionsT = TypeVar("OptionsT")

PLAN_OPTION_WORDS = {
    "workers": "workers",
    "batch_size": "examples per worker",
    "grad_accumulation": "micro-steps",
    "lr": "as the learning rate",
}


def apply_plan(options: OptionsT, arguments: list[str] | None = None) -> OptionsT:
    """What is asked, with what its plan says. `words` are the command line, this process's own if not given.

    An option that says otherwise is refused: what a plan foretells holds for its numbers together, and whoever
    changes one of them means another plan, or none.
    """
    path: Path | None = getattr(options, "plan", None)
    if path is None:
        return options
    given = {word.partition("=")[0] for word in (sys.argv[1:] if arguments is None else arguments)}
    plan = read_plan_settings(path)
    for name, value in plan.items():
        if f"--{name.replace('_', '-')}" in given and (other := getattr(options, name)) != value:
            raise ValueError(
                f"--plan {path} has {value:g} {PLAN_OPTION_WORDS[name]}"
                f" and --{name.replace('_', '-')} asks for {other:g}: leave out one of the two"
            )
    changes = {name: value for name, value in plan.items() if f"--{name.replace('_', '-')}" not in given}
    return replace(options, **changes)  # type: ignore[type-var] # a dataclass, as all that is asked


def read_plan_settings(path: Path) -> dict[str, Any]:
    """The plan's own numbers; `path` is plan.json, or the folder of a sweep that holds it."""
    file = path / "plan.json" if path.is_dir() else path
    try:
        facts = read_json(file)
    except FileNotFoundError:
        raise ValueError(
            f"no plan at {file}: give the plan.json of a sweep; to a submitted job, by an absolute path that its nodes"
            " share, for what .rayignore names does not travel"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read ({error}): give the plan.json of a sweep") from None
    plan = facts.get("plan", ...) if isinstance(facts, dict) else ...
    if plan is None:
        why = facts.get("warnings")
        told = "; ".join(map(str, why)) if isinstance(why, list) else "measure more"
        raise ValueError(f"{file} has no plan: {told}")
    if not isinstance(plan, dict):
        raise ValueError(f"{file} is no plan that jobs.plan or jobs.sweep wrote: give the plan.json of a sweep")
    workers, batch, whole = (require_count(file, plan, name) for name in ("workers", "batch", "global_batch"))
    lr = plan.get("lr")
    if lr is not None and not (is_finite_number(lr) and 0 < lr < float("inf")):
        raise ValueError(f"{file}: plan.lr must be a number above 0, or null, got {lr!r}")
    accumulate, over = divmod(whole, workers * batch)
    if over or not accumulate:
        raise ValueError(f"{file} has a global batch of {whole}, which {workers} workers x {batch} do not divide")
    found = {"workers": workers, "batch_size": batch, "grad_accumulation": accumulate}
    return found if lr is None else found | {"lr": lr}


def require_count(file: Path, plan: dict[str, Any], name: str) -> int:
    """One of a plan's whole numbers."""
    value = plan.get(name)
    if not is_finite_number(value) or value % 1 or not 1 <= value <= MAX_COUNT:
        raise ValueError(f"{file}: plan.{name} must be {COUNT_COLUMN.description}, got {value!r}")
    return int(value)
