"""Measurements of sweeps with their fits in memory, and plans from them within limits."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from dashboards.experiments import READ_ERRORS
from equipoise.errors import EquipoiseError
from equipoise.planning.document import PLAN_FILE, PlanDocument
from equipoise.planning.measurements import TARGETS_TABLE
from equipoise.planning.replanning.folder_tables import read_sweep_request
from equipoise.planning.replanning.refuting_runs import add_refuting_runs
from equipoise.planning.replanning.replanner import LimitRanges, PlanLimits, Replanner
from services.site.result_paths import resolve_result_path

MAX_REMEMBERED_SWEEPS = 8
TABLES = ("system.csv", "statistical.csv", "exchange.csv", TARGETS_TABLE, PLAN_FILE)
Stamps = tuple[tuple[int, int] | None, ...]


@dataclass(frozen=True, kw_only=True)
class LimitedPlan:
    """Plan of a sweep within limits."""

    document: PlanDocument
    stored: PlanDocument | None
    """plan.json as it lies in the folder; None without one"""
    ranges: LimitRanges
    seconds: float
    """time that the computation took"""

    @property
    def is_stored_plan(self) -> bool:
        """Whether the stored plan recommends the same setting."""
        plan, stored = self.document.plan, self.stored.plan if self.stored else None
        if plan is None or stored is None:
            return False
        settings = [(entry.nodes, entry.workers, entry.batch, entry.lr, entry.exchange) for entry in (plan, stored)]
        return settings[0] == settings[1]


class PlanDesk:
    """Plans of the results, of which the last few sweeps keep their fits; threads may share it."""

    def __init__(self, results: Path) -> None:
        self.results, self._lock = results, Lock()
        self._replanners: OrderedDict[Path, tuple[Stamps, Replanner, PlanDocument | None, Lock]] = OrderedDict()

    def build_plan(self, name: str, limits: PlanLimits) -> LimitedPlan:
        """Build the plan of a sweep within limits; refuse a folder without measurements to plan with."""
        folder = resolve_result_path(self.results, name)
        replanner, stored, lock = self._find_replanner(folder, name)
        with lock:  # the second request of the same sweep waits for the fits of the first
            ranges = replanner.find_ranges()
            started_at = time.perf_counter()
            document = replanner.build_plan(limits).document
            seconds = time.perf_counter() - started_at
        return LimitedPlan(document=document, stored=stored, ranges=ranges, seconds=seconds)

    def _find_replanner(self, folder: Path, name: str) -> tuple[Replanner, PlanDocument | None, Lock]:
        """Return the fits of a folder and its stored plan, anew if one of its files has changed."""
        stamps = tuple(stamp_file(folder / table) for table in TABLES)
        with self._lock:
            known = self._replanners.get(folder)
            if known is None or known[0] != stamps:
                stored = read_stored_plan(folder)
                known = stamps, read_replanner(folder, name, stored), stored, Lock()
                self._replanners[folder] = known
            self._replanners.move_to_end(folder)
            while len(self._replanners) > MAX_REMEMBERED_SWEEPS:
                self._replanners.popitem(last=False)
        return known[1:]


def read_replanner(folder: Path, name: str, stored: PlanDocument | None) -> Replanner:
    """Read the tables of a sweep with the runs that refuted its plans."""
    missing = [table for table in TABLES[:2] if not (folder / table).is_file()]
    if missing:
        raise EquipoiseError(
            "plan-missing",
            f"cannot plan with {name}: it has no {' and no '.join(missing)}",
            "wait for the end of the sweep, or give the folder of one that has ended",
        )
    refuting = [run for run in stored.confirmations if run.status == "refuted" and not run.exchange] if stored else []
    return Replanner(add_refuting_runs(read_sweep_request(folder), refuting))


def read_stored_plan(folder: Path) -> PlanDocument | None:
    """Read the plan.json of a folder; None if there is none, or it is damaged."""
    try:
        return PlanDocument.read(folder / PLAN_FILE)
    except (*READ_ERRORS, OSError):
        return None


def stamp_file(path: Path) -> tuple[int, int] | None:
    """Return the time of change and the size of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
