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

from equipoise.planning import measurements as tables
from equipoise.runs import folder as runs
from equipoise.runs.record import Record
from equipoise.storage import atomic as store

Facts = dict[str, Any]

INSIDE = ("trials", "tune", "checkpoints", "system")
"""folders of a sweep or a run that are parts of it"""
PAGES = {"run": ("run",), "sweep": ("curve", "scaling"), "plan": ("curve", "scaling"), "check": ("drift",)}
"""of each kind, the first being the one that an index leads to"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A folder, and what it holds."""

    kind: str
    """run, sweep, plan, bundle, check, or `?`"""
    path: Path
    found: Any = None
    why: str = ""
    """what is wrong with it; empty: nothing"""
    changed: float = field(default=0.0)
    """seconds since 1970"""

    @property
    def page(self) -> Path | None:
        """Its own page, if it has one."""
        page = self.path / f"{PAGES[self.kind][0]}.html" if self.kind in PAGES else None
        return page if page and page.exists() else None

    def names(self, root: Path) -> list[str]:
        """Of all the pages that it can have, below a folder."""
        here = self.path.relative_to(root)
        return [(here / name).as_posix() for name in PAGES.get(self.kind, ())]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The tables and the plan of a sweep."""

    plan: Facts
    system: pd.DataFrame | None
    statistical: pd.DataFrame | None
    trial: Facts = field(default_factory=dict)
    confirm: Facts | None = None
    trials: int = 0
    under_way: Sequence[Record] = ()
    """trials so far, of a sweep that has not come to its table of them"""


FOREIGN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""whatever contents give rise to that another program wrote, or that were damaged"""
EMPTY: Facts = {"plan": None, "front": [], "options": [], "knee": None, "system": None, "statistical": None}


def found(root: Path) -> Iterator[Experiment]:
    """All below a folder, in the order of their names."""
    for place, folders, files in os.walk(root):
        names = {*files, *folders}
        folders[:] = sorted(name for name in folders if name not in INSIDE and not name.startswith("."))
        if (one := experiment(Path(place), names)) is not None:
            yield one


def below(root: Path, place: Path) -> Experiment | None:
    """What one folder below another is; None where `found` would not come by."""
    inside = not place.is_absolute() and not any(part in INSIDE or part.startswith(".") for part in place.parts)
    whole = root / place
    with suppress(OSError, ValueError):  # gone meanwhile, closed to us, or a name that no folder has
        if not inside or not whole.is_dir() or whole.resolve() != root.resolve() / place:
            return None
        return experiment(whole, {one.name for one in whole.iterdir()})
    return None


def at(place: Path) -> Experiment:
    """What one folder is."""
    there = [*place.iterdir()] if place.is_dir() else []
    return experiment(place, {one.name for one in there}) or Experiment(
        kind="?", path=place, why=f"there is nothing of ours in {place}"
    )


def experiment(place: Path, files: set[str]) -> Experiment | None:
    """What one folder is; None if it is nothing of ours."""
    kinds = {"record.json": run, "verdict.json": check, "bundle.json": bundle, "plan.json": plan}
    if not files & {"plan.json", "record.json"} and "trial.json" in files and files & {"system.csv", "system"}:
        return told("sweep", place, place / "trial.json", plan)  # that has not come to a plan
    for name, read in kinds.items():
        if name in files:
            kind = {"plan.json": "sweep" if "trial.json" in files else "plan"}.get(name, read.__name__)
            return told(kind, place, place / name, read)
    if "trial.json" in files:
        why = "no record yet: it is under way, or was cut off; the same command goes on"
        return Experiment(kind="run", path=place, why=why, changed=changed(place / "trial.json"))
    return None


def told(kind: str, place: Path, file: Path, read: Any) -> Experiment:
    """An experiment, or what is wrong with it."""
    try:
        return Experiment(kind=kind, path=place, found=read(file), changed=changed(file))
    except (*FOREIGN, OSError) as error:
        why = str(error) if isinstance(error, ValueError | OSError) else f"{file} is not what {kind}s leave ({error!r})"
        return Experiment(kind=kind, path=place, why=why, changed=changed(file))


def foreign(one: Experiment, error: Exception) -> Experiment:
    """One that was read and cannot be shown."""
    kind = type(error).__name__
    return replace(one, found=None, why=f"it cannot be shown, another program wrote it or it was damaged ({kind})")


def changed(file: Path) -> float:
    """When it was written."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def run(file: Path) -> Record:
    """A record."""
    return runs.read(file)


def plan(file: Path) -> Sweep:
    """A plan with the tables beside it, as far as they are there."""
    place = file.parent
    facts = EMPTY | {"warnings": ["this sweep has come to no plan yet"]}
    if (place / "plan.json").exists():
        facts = EMPTY | require(store.read_json(place / "plan.json"), place / "plan.json", "front", "warnings")
    trial, counted = place / "trial.json", (place / "statistical.csv").is_file()
    under_way = [] if counted else tried(place / "trials")
    table = tables.statistical(place / "statistical.csv") if counted else counts(under_way)
    return Sweep(
        plan=facts,
        system=tables.system(place / "system.csv") if (place / "system.csv").is_file() else None,
        statistical=table,
        trial=require(store.read_json(trial), trial) if trial.exists() else {},
        confirm=store.read_json(place / "confirm.json") if (place / "confirm.json").exists() else None,
        trials=len(table) if counted and table is not None else len(list((place / "trials").glob("*.json"))),
        under_way=under_way,
    )


def tried(folder: Path) -> list[Record]:
    """Trials that can be read: one that is being written is there the next time."""
    found = []
    for path in sorted(folder.glob("*.json")):
        with suppress(ValueError, OSError):
            found.append(runs.read(path))
    return found


def counts(trials: Sequence[Record]) -> pd.DataFrame | None:
    """Rows as statistical.csv will have them, of the trials that reached the target so far."""
    rows = [
        (one.trial.global_batch, one.trial.lr, one.trial.seed, one.examples_to_target, 1)
        for one in trials
        if one.examples_to_target
    ]
    return pd.DataFrame(rows, columns=[*tables.STATISTICAL]) if rows else None


def check(file: Path) -> Facts:
    """A verdict."""
    return require(store.read_json(file), file, "state", "charts", "images")


def bundle(file: Path) -> Facts:
    """What a published model says of itself; its weights are not looked at."""
    return require(store.read_json(file), file, "name", "classes", "metrics")


def require(facts: Any, file: Path, *names: str) -> Facts:
    """An object that has these names."""
    if not isinstance(facts, dict) or (missing := [name for name in names if name not in facts]):
        what = f"lacks {', '.join(missing)}" if isinstance(facts, dict) else "holds no object"
        raise ValueError(f"{file} {what}: another program wrote it, or it was damaged")
    return facts
