"""Refuse to write results into a folder that holds those of another command."""

import os
from pathlib import Path
from typing import Literal

from equipoise.bundle.folder import MANIFEST_FILE
from equipoise.errors import EquipoiseError
from equipoise.planning.device_comparison.comparison_report import COMPARISON_FILE
from equipoise.planning.document import PLAN_FILE
from equipoise.planning.exchanges.link_report import LINKS_FILE
from equipoise.profiling.profile_report import PROFILE_FILE
from equipoise.storage.object_store import RemotePath
from equipoise.storage.path_errors import report_path_errors

ResultKind = Literal["bundle", "sweep", "run", "plan", "check", "link measurement", "profile", "comparison"]
SWEEP_NAMES = {"trials", "system", "system.csv", "statistical.csv", "confirm", "setup.json", PLAN_FILE}
RUN_NAMES = {"record.json", "laps.jsonl", "checkpoints", "model.safetensors"}
OTHER_OUT = "choose another --out"


def require_no_other_results(out: Path, kind: ResultKind) -> None:
    """Refuse a folder that holds results of another kind than a command writes, or that lies inside a bundle."""
    require_outside_bundles(out)
    with report_path_errors(f"cannot write to {out}"):
        found = find_result_kind(out)
    if found not in (None, kind):
        raise EquipoiseError(
            "path-in-use", f"cannot write to {out}: it holds a {found}, and this command writes a {kind}", OTHER_OUT
        )


def require_outside_bundles(out: Path) -> None:
    """Refuse a folder inside a bundle, which is damaged by any further file; behind a URL it is not."""
    if isinstance(out, RemotePath):
        return
    with report_path_errors(f"cannot write to {out}"):  # `resolve` raises another error for a link to itself
        bundles = [folder for folder in Path(os.path.realpath(out)).parents if (folder / MANIFEST_FILE).is_file()]
    if bundles:
        raise EquipoiseError(
            "path-in-use", f"cannot write to {out}: it would damage the bundle {bundles[0]}", OTHER_OUT
        )


def find_result_kind(folder: Path) -> ResultKind | None:
    """Return what kind of results a folder holds; None if it has none, or too few to tell a sweep from a run."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if MANIFEST_FILE in names:
        return "bundle"
    if "trial.json" in names and names & SWEEP_NAMES:
        return "sweep"
    if names & RUN_NAMES:
        return "run"
    if PLAN_FILE in names:
        return "plan"
    if LINKS_FILE in names:
        return "link measurement"
    if PROFILE_FILE in names:
        return "profile"
    if COMPARISON_FILE in names:
        return "comparison"
    return "check" if "verdict.json" in names else None


def require_new_folder(out: Path) -> None:
    """Refuse a folder that exists, cannot be created, or would lie inside a bundle."""
    if out.exists() or out.is_symlink():
        raise EquipoiseError("path-exists", f"cannot create --out {out}: it already exists", "choose another folder")
    parent = next(folder for folder in out.parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise EquipoiseError(
            "path-access", f"cannot create --out {out}: {parent} is not a writable folder", "choose another"
        )
    require_outside_bundles(out)
