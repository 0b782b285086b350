"""What lies in a folder of runs: records, sweeps, plans, bundles and checks, and whatever else was found there.

Nothing that is missing, half-written or foreign is an error: it is told as what it is.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from equipoise.planning.measurements import STATISTICAL_COLUMNS, read_examples_to_target, read_step_times
from equipoise.runs.folder import read_record
from equipoise.runs.record import Record
from equipoise.storage.atomic import read_json
from equipoise.type_aliases import JsonObject

SKIPPED_FOLDERS = ("trials", "tune", "checkpoints", "system")
"""folders of a sweep or a run that are parts of it"""
PAGES_BY_KIND = {"run": ("run",), "sweep": ("curve", "scaling"), "plan": ("curve", "scaling"), "check": ("drift",)}
"""of each kind, the first being the one that an index leads to"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A folder, and what it holds."""

    kind: str
    """run, sweep, plan, bundle, check, or `?`"""
    path: Path
    content: Any = None
    problem: str = ""
    """what is wrong with it; empty: nothing"""
    modified: float = field(default=0.0)
    """seconds since 1970"""

    @property
    def page_path(self) -> Path | None:
        """Its own page, if it has one."""
        page = self.path / f"{PAGES_BY_KIND[self.kind][0]}.html" if self.kind in PAGES_BY_KIND else None
        return page if page and page.exists() else None

    def page_names(self, root: Path) -> list[str]:
        """Of all the pages that it can have, below a folder."""
        here = self.path.relative_to(root)
        return [(here / name).as_posix() for name in PAGES_BY_KIND.get(self.kind, ())]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The tables and the plan of a sweep."""

    plan: JsonObject
    step_times: pd.DataFrame | None
    examples_to_target: pd.DataFrame | None
    trial: JsonObject = field(default_factory=dict)
    confirmation: JsonObject | None = None
    num_trials: int = 0
    unfinished_trials: Sequence[Record] = ()
    """trials so far, of a sweep that has not come to its table of them"""


READ_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""whatever contents give rise to that another program wrote, or that were damaged"""
EMPTY_PLAN: JsonObject = {"plan": None, "front": [], "options": [], "knee": None, "system": None, "statistical": None}


def find_experiments(root: Path) -> Iterator[Experiment]:
    """All below a folder, in the order of their names."""
    for place, folders, files in os.walk(root):
        names = {*files, *folders}
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        if (one := classify_folder(Path(place), names)) is not None:
            yield one


def experiment_at(root: Path, relative: Path) -> Experiment | None:
    """What one folder below another is; None where `find_experiments` would not come by."""
    inside = not relative.is_absolute() and not any(
        part in SKIPPED_FOLDERS or part.startswith(".") for part in relative.parts
    )
    whole = root / relative
    with suppress(OSError, ValueError):  # gone meanwhile, closed to us, or a name that no folder has
        if not inside or not whole.is_dir() or whole.resolve() != root.resolve() / relative:
            return None
        return classify_folder(whole, {one.name for one in whole.iterdir()})
    return None


def load_experiment(folder: Path) -> Experiment:
    """What one folder is."""
    there = [*folder.iterdir()] if folder.is_dir() else []
    return classify_folder(folder, {one.name for one in there}) or Experiment(
        kind="?", path=folder, problem=f"there is nothing of ours in {folder}"
    )


def classify_folder(folder: Path, file_names: set[str]) -> Experiment | None:
    """What one folder is; None if it is nothing of ours."""
    readers = {
        "record.json": ("run", read_run_record),
        "verdict.json": ("check", read_verdict),
        "bundle.json": ("bundle", read_bundle_metadata),
        "plan.json": ("sweep" if "trial.json" in file_names else "plan", read_sweep),
    }
    if (
        not file_names & {"plan.json", "record.json"}
        and "trial.json" in file_names
        and file_names & {"system.csv", "system"}
    ):
        return try_load("sweep", folder, folder / "trial.json", read_sweep)  # that has not come to a plan
    for name, (kind, read_content) in readers.items():
        if name in file_names:
            return try_load(kind, folder, folder / name, read_content)
    if "trial.json" in file_names:
        why = "no record yet: it is under way, or was cut off; the same command goes on"
        return Experiment(kind="run", path=folder, problem=why, modified=modification_time(folder / "trial.json"))
    return None


def try_load(kind: str, folder: Path, file: Path, read_content: Any) -> Experiment:
    """An experiment, or what is wrong with it."""
    try:
        return Experiment(kind=kind, path=folder, content=read_content(file), modified=modification_time(file))
    except (*READ_ERRORS, OSError) as error:
        why = str(error) if isinstance(error, ValueError | OSError) else f"{file} is not what {kind}s leave ({error!r})"
        return Experiment(kind=kind, path=folder, problem=why, modified=modification_time(file))


def mark_unreadable(experiment: Experiment, error: Exception) -> Experiment:
    """One that was read and cannot be shown."""
    kind = type(error).__name__
    return replace(
        experiment, content=None, problem=f"it cannot be shown, another program wrote it or it was damaged ({kind})"
    )


def modification_time(file: Path) -> float:
    """When it was written."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def read_run_record(file: Path) -> Record:
    """A record."""
    return read_record(file)


def read_sweep(file: Path) -> Sweep:
    """A plan with the tables beside it, as far as they are there."""
    place = file.parent
    facts = EMPTY_PLAN | {"warnings": ["this sweep has come to no plan yet"]}
    if (place / "plan.json").exists():
        facts = EMPTY_PLAN | require_keys(read_json(place / "plan.json"), place / "plan.json", "front", "warnings")
    trial, counted = place / "trial.json", (place / "statistical.csv").is_file()
    under_way = [] if counted else read_trials(place / "trials")
    table = read_examples_to_target(place / "statistical.csv") if counted else trials_to_table(under_way)
    return Sweep(
        plan=facts,
        step_times=read_step_times(place / "system.csv") if (place / "system.csv").is_file() else None,
        examples_to_target=table,
        trial=require_keys(read_json(trial), trial) if trial.exists() else {},
        confirmation=read_json(place / "confirm.json") if (place / "confirm.json").exists() else None,
        num_trials=len(table) if counted and table is not None else len(list((place / "trials").glob("*.json"))),
        unfinished_trials=under_way,
    )


def read_trials(folder: Path) -> list[Record]:
    """Trials that can be read: one that is being written is there the next time."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(ValueError, OSError):
            found.append(read_record(path))
    return found


def trials_to_table(trials: Sequence[Record]) -> pd.DataFrame | None:
    """Rows as statistical.csv will have them, of the trials that reached the target so far."""
    rows = [
        (one.config.global_batch, one.config.lr, one.config.seed, one.examples_to_target, 1)
        for one in trials
        if one.examples_to_target
    ]
    return pd.DataFrame(rows, columns=[*STATISTICAL_COLUMNS]) if rows else None


def read_verdict(file: Path) -> JsonObject:
    """A verdict."""
    return require_keys(read_json(file), file, "state", "charts", "images")


def read_bundle_metadata(file: Path) -> JsonObject:
    """What a published model says of itself; its weights are not looked at."""
    return require_keys(read_json(file), file, "name", "classes", "metrics")


def require_keys(value: Any, file: Path, *keys: str) -> JsonObject:
    """An object that has these names."""
    if not isinstance(value, dict) or (missing := [name for name in keys if name not in value]):
        what = f"lacks {', '.join(missing)}" if isinstance(value, dict) else "holds no object"
        raise ValueError(f"{file} {what}: another program wrote it, or it was damaged")
    return value
