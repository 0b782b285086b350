"""Find and read the experiments in a folder: runs, sweeps, plans, bundles, drift checks and measurements.

A file that is missing, half-written or foreign is no error: the experiment carries a description of the problem.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from equipoise.bundle.manifest import Manifest
from equipoise.command_template import find_program_name
from equipoise.drift.diagnosis.verdict import Verdict, parse_verdict
from equipoise.errors import EquipoiseError
from equipoise.planning.device_comparison.comparison_report import COMPARISON_FILE, DeviceComparison
from equipoise.planning.devices.device_rows import select_device_rows
from equipoise.planning.document import PLAN_FILE, PlanDocument
from equipoise.planning.exchanges.exact_rows import select_exact_runs, select_exact_steps
from equipoise.planning.exchanges.link_report import LINK_REPORT_FILE, LinkReport
from equipoise.planning.measurements import STATISTICAL_COLUMNS, read_examples_to_target, read_step_times
from equipoise.planning.recipe_choice.recipe_report import RECIPES_FILE, RecipeReport
from equipoise.planning.search_status.search_progress import SEARCH_FILE, SearchProgress
from equipoise.planning.sharding.memory_report import MEMORY_FILE, MemoryReport
from equipoise.profiling.profile_report import PROFILE_FILE, ProfileReport
from equipoise.runs.folder import read_record
from equipoise.runs.listing import NON_RECORD_FOLDERS
from equipoise.runs.record import Record
from equipoise.storage.atomic import read_json
from equipoise.type_aliases import JsonObject

SKIPPED_FOLDERS = ("trials", *NON_RECORD_FOLDERS)
"""folders that are part of a sweep or run, not experiments of their own; a listing of records enters trials"""
PROFILE_PAGE, COMPARISON_PAGE = "profile", "comparison"
PAGES_BY_KIND = {
    "run": ("run",),
    "sweep": ("curve", "scaling"),
    "plan": ("curve", "scaling"),
    "check": ("drift",),
    "profile": (PROFILE_PAGE,),
    "comparison": (COMPARISON_PAGE,),
    "links": ("links",),
}
"""page names of each kind of experiment; an index links to the first"""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Experiment in a folder: its kind and content, or the problem with it."""

    kind: str
    """run, sweep, plan, bundle, check, profile, comparison, links, or `?`"""
    path: Path
    content: Any = None
    problem: str = ""
    """why it cannot be read or shown; empty if it can"""
    modified: float = field(default=0.0)
    """time of the last change, in seconds since 1970"""

    @property
    def page_path(self) -> Path | None:
        """Path of the first page of the experiment, None if it does not exist."""
        page = self.path / f"{PAGES_BY_KIND[self.kind][0]}.html" if self.kind in PAGES_BY_KIND else None
        return page if page and page.exists() else None

    def page_names(self, root: Path) -> list[str]:
        """Return the names of all pages that the experiment can have, relative to a folder above it."""
        folder = self.path.relative_to(root)
        return [(folder / name).as_posix() for name in self.list_pages()]

    def list_pages(self) -> list[str]:
        """List the names of its pages: those of its kind, and that of the profile of an observed run."""
        names = [*PAGES_BY_KIND.get(self.kind, ())]
        has_profile = self.kind == "run" and (self.path / PROFILE_FILE).is_file()
        return [*names, PROFILE_PAGE] if has_profile else names


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Plan, tables and trials of a sweep, as far as they exist."""

    plan: PlanDocument
    step_times: pd.DataFrame | None
    examples_to_target: pd.DataFrame | None
    trial: JsonObject = field(default_factory=dict)
    num_trials: int = 0
    unfinished_trials: Sequence[Record] = ()
    """trials of a sweep that has not written statistical.csv yet"""
    memory: MemoryReport | None = None
    """memory of a worker, of a sweep with a limit of it"""
    recipes: RecipeReport | None = None
    """what each recipe does, of a sweep that compares several"""
    search: SearchProgress | None = None
    """what the search tries and why, of a sweep that has begun with its trials"""
    is_finished: bool = True
    """whether all trials have ended, so that their table is written"""

    @property
    def trained_name(self) -> str:
        """Name of what the trials train: a workload, or the program of a command; empty for tables alone."""
        command = self.trial.get("command")
        return str(self.trial.get("workload") or (find_program_name(command) if command else ""))


# One experiment that cannot be read or shown must not take the index with it, so this is a wide net. It must cover what
# our readers refuse (EquipoiseError, a ValueError), and JSON that is valid but not ours, which fails wherever it is
# first used: a missing key or an empty list (LookupError), a text, null or list in place of a number or object
# (TypeError, AttributeError), a number that cannot be formatted, drawn or divided by (ValueError, ArithmeticError), and
# nesting that is deeper than Python's stack (RecursionError).
READ_ERRORS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""exceptions raised by contents that another program wrote, or that are damaged"""
NO_PLAN = (
    "This sweep has no plan yet. If it is still running, the plan appears at its end; if it was stopped, the same"
    " command with the same --out resumes it."
)
NO_PLAN_YET = PlanDocument(plan=None, front=(), warnings=(NO_PLAN,))


def find_experiments(root: Path) -> Iterator[Experiment]:
    """Yield all experiments below a folder, in the order of their names."""
    for folder, folders, files in os.walk(root):
        names = {*files, *folders}
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        if (experiment := classify_folder(Path(folder), names)) is not None:
            yield experiment


def experiment_at(root: Path, relative: Path) -> Experiment | None:
    """Return the experiment in one folder below the root; None for folders that `find_experiments` does not visit."""
    is_visited = not relative.is_absolute() and not any(
        part in SKIPPED_FOLDERS or part.startswith(".") for part in relative.parts
    )
    folder = root / relative
    with suppress(OSError, ValueError):  # removed meanwhile, not readable, or a name with a null byte (ValueError)
        if not is_visited or not folder.is_dir() or folder.resolve() != root.resolve() / relative:
            return None
        return classify_folder(folder, {path.name for path in folder.iterdir()})
    return None


def load_experiment(folder: Path) -> Experiment:
    """Return the experiment in a folder; of the kind `?` if it holds none."""
    paths = [*folder.iterdir()] if folder.is_dir() else []
    return classify_folder(folder, {path.name for path in paths}) or Experiment(
        kind="?", path=folder, problem=f"{folder} holds no run, sweep, plan, bundle, drift check or measurement"
    )


def classify_folder(folder: Path, file_names: set[str]) -> Experiment | None:
    """Return the experiment in a folder with these files; None if it holds none."""
    readers = {
        "record.json": ("run", read_run_record),
        "verdict.json": ("check", read_verdict),
        "bundle.json": ("bundle", Manifest.read),
        "plan.json": ("sweep" if "trial.json" in file_names else "plan", read_sweep),
    }
    if (
        not file_names & {"plan.json", "record.json"}
        and "trial.json" in file_names
        and file_names & {"setup.json", "system.csv", "system"}
    ):
        return try_load("sweep", folder, folder / "trial.json", read_sweep)  # without a plan yet
    for name, (kind, read_content) in readers.items():
        if name in file_names:
            return try_load(kind, folder, folder / name, read_content)
    if "trial.json" in file_names:
        problem = "no record yet: the run is in progress or was interrupted; the same command resumes it"
        return Experiment(kind="run", path=folder, problem=problem, modified=modification_time(folder / "trial.json"))
    for name, (kind, read_content) in MEASUREMENT_READERS.items():
        if name in file_names:
            return try_load(kind, folder, folder / name, read_content)
    return None


def try_load(kind: str, folder: Path, file: Path, read_content: Any) -> Experiment:
    """Read an experiment's content; what is wrong with it becomes the experiment's problem."""
    try:
        return Experiment(kind=kind, path=folder, content=read_content(file), modified=modification_time(file))
    except (*READ_ERRORS, OSError) as error:
        is_plain = isinstance(error, EquipoiseError | OSError)
        problem = str(error) if is_plain else f"cannot read {file}: it is not the file of a {kind} ({error!r})"
        return Experiment(kind=kind, path=folder, problem=problem, modified=modification_time(file))


def mark_unreadable(experiment: Experiment, error: Exception) -> Experiment:
    """Return an experiment that was read but cannot be shown, with the problem instead of the content."""
    problem = f"cannot be shown: it was written by another program or damaged ({type(error).__name__})"
    return replace(experiment, content=None, problem=problem)


def modification_time(file: Path) -> float:
    """Return when a file was last written, in seconds since 1970; 0 if it cannot be read."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def read_run_record(file: Path) -> Record:
    """Read the record of a training run."""
    return read_record(file)


def read_sweep(file: Path) -> Sweep:
    """Read a plan with the tables beside it, as far as they exist."""
    folder = file.parent
    plan = folder / PLAN_FILE
    trial, is_finished = folder / "trial.json", (folder / "statistical.csv").is_file()
    unfinished_trials = [] if is_finished else read_trials(folder / "trials")
    table = read_examples_to_target(folder / "statistical.csv") if is_finished else trials_to_table(unfinished_trials)
    steps = read_step_times(folder / "system.csv") if (folder / "system.csv").is_file() else None
    document = PlanDocument.read(plan) if plan.exists() else NO_PLAN_YET
    device = (document.system.device if document.system else None) or ""
    return Sweep(
        plan=document,
        step_times=None if steps is None else select_exact_steps(select_device_rows(steps, device)),
        examples_to_target=None if table is None else select_exact_runs(table),
        trial=require_keys(read_json(trial), trial) if trial.exists() else {},
        num_trials=len(table) if is_finished and table is not None else len(list((folder / "trials").glob("*.json"))),
        unfinished_trials=unfinished_trials,
        recipes=RecipeReport.from_json(read_json(recipes)) if (recipes := folder / RECIPES_FILE).is_file() else None,
        search=SearchProgress.read(search) if (search := folder / SEARCH_FILE).is_file() else None,
        is_finished=is_finished or not trial.exists(),
        memory=MemoryReport.from_json(read_json(memory)) if (memory := folder / MEMORY_FILE).is_file() else None,
    )


def read_trials(folder: Path) -> list[Record]:
    """Read the records of trials, without those that are being written or damaged."""
    records = []
    for path in sorted(folder.glob("*.json")):
        with suppress(EquipoiseError, OSError):
            records.append(read_record(path))
    return records


def trials_to_table(trials: Sequence[Record]) -> pd.DataFrame | None:
    """Return the rows of statistical.csv for the trials that reached the target so far; None without any."""
    rows = [
        (trial.config.global_batch, trial.config.lr, trial.config.seed, trial.examples_to_target, 1)
        for trial in trials
        if trial.examples_to_target
    ]
    return pd.DataFrame(rows, columns=[*STATISTICAL_COLUMNS]) if rows else None


def read_verdict(file: Path) -> Verdict:
    """Read the verdict of a drift check."""
    return parse_verdict(read_json(file), f"cannot read {file}")


def read_profile(file: Path) -> ProfileReport:
    """Read the profile of training steps."""
    return ProfileReport.from_json(read_json(file))


def read_comparison(file: Path) -> DeviceComparison:
    """Read the comparison of one worker with several."""
    return DeviceComparison.from_json(read_json(file))


def read_links(file: Path) -> LinkReport:
    """Read the measurement of a cluster's links."""
    return LinkReport.from_json(read_json(file))


MEASUREMENT_READERS = {
    PROFILE_FILE: ("profile", read_profile),
    COMPARISON_FILE: ("comparison", read_comparison),
    LINK_REPORT_FILE: ("links", read_links),
}
"""kind and reader of measurements that have a folder of their own"""


def require_keys(value: Any, file: Path, *keys: str) -> JsonObject:
    """Return a parsed JSON file that must be an object with these keys; refuse it if it is not."""
    if not isinstance(value, dict) or (missing := [name for name in keys if name not in value]):
        problem = f"it lacks {', '.join(missing)}" if isinstance(value, dict) else "it is not a JSON object"
        raise EquipoiseError(
            "file-damaged", f"cannot read {file}: {problem}, so it was written by another program or damaged"
        )
    return value
