"""What a sweep is measured with: refuse one without a target, and to go on with other data or another model."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.planning.document import PLAN_FILE, PlanDocument
from equipoise.planning.training_setup import TrainingSetup, rename_old_setup_keys
from equipoise.runs.target import Target
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.json_decoding import decode_json_value
from equipoise.workloads import Workload, load_workload

SETUP_FILE = "setup.json"  # in the folder of a sweep


def load_workload_with_target(config: TrainConfig) -> Workload:
    """Load the workload of a sweep; refuse one without a target, because a plan predicts the time to it."""
    workload = load_workload(config)
    require_target(workload.run_target(config), f"cannot sweep {config.name}")
    return workload


def require_target(target: Target, problem: str) -> None:
    """Refuse to plan for training without a target; the message begins with `problem`."""
    if target.value is None:
        raise EquipoiseError(
            "option-missing", f"{problem}: it has no target, and a plan predicts the time to one", "give --target"
        )


def require_same_sweep_setup(out: Path, setup: TrainingSetup) -> None:
    """Refuse a folder of a sweep whose measurements have another setup than the sweep has now."""
    measured = read_sweep_setup(out)
    if measured and (differences := measured.differences(setup)):
        raise EquipoiseError(
            "run-mismatch",
            f"cannot go on with the sweep in {out}: it was measured with {'; '.join(differences)}",
            "give another --out",
        )


def read_sweep_setup(out: Path) -> TrainingSetup | None:
    """Read what a sweep was measured with, from its plan if an earlier version has begun it; None if it has not begun.

    The plan of a sweep that is damaged is written anew, and does not keep the sweep from going on.
    """
    path = out / SETUP_FILE
    if path.exists():
        return decode_json_value(
            rename_old_setup_keys(read_json(path)),
            TrainingSetup,
            code="file-damaged",
            problem=f"cannot read {path}",
            remedy="remove it if the data are those of the trials",
        )
    if not (out / PLAN_FILE).exists():
        return None
    try:
        return PlanDocument.read(out / PLAN_FILE).setup
    except EquipoiseError:
        return None


def write_sweep_setup(out: Path, setup: TrainingSetup) -> None:
    """Write what a sweep is measured with, so that it goes on with the same only."""
    write_json(out / SETUP_FILE, asdict(setup))


@contextmanager
def forget_empty_sweep(out: Path) -> Iterator[None]:
    """Remove the setup of a sweep that is refused before anything was measured, so that it can change."""
    try:
        yield
    except EquipoiseError:
        if not any((out / "system").glob("*.json")) and not any((out / "trials").glob("*.json")):
            for name in (SETUP_FILE, "trial.json"):
                (out / name).unlink(missing_ok=True)
        raise
