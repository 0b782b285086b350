"""Folder of one training run: its lock, the trial it belongs to, and the record it holds."""

import fcntl
import os
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import BinaryIO

from equipoise.config import TrainConfig
from equipoise.errors import EquipoiseError
from equipoise.registries.option_groups import DEFAULTED_OPTIONS
from equipoise.runs.record import Record
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.location import validate_location
from equipoise.storage.object_store import RemotePath
from equipoise.storage.path_errors import report_path_errors
from equipoise.storage.retry import without_retries

LOCK_FILE_NAME = ".lock"
REMOVE_RECORD_REMEDY = "remove it to train again from the last checkpoint"


def load_finished_run(out: Path, config: TrainConfig, changeable: Collection[str] = ()) -> Record | None:
    """Load the record of a finished run from its folder, or None before that; refuse a folder of something else.

    Options named in `changeable` may differ from those of the run.
    """
    require_same_config(out, config, changeable)
    path = out / "record.json"
    if not path.exists():
        return None
    record = read_record(path)
    settled = {name: getattr(record.config, name) for name in DEFAULTED_OPTIONS}  # what was not given when it began
    settled_config = config.with_defaults(settled)
    if record.config != replace(settled_config, **{name: getattr(record.config, name) for name in changeable}):
        raise EquipoiseError(
            "run-mismatch",
            f"cannot use {path}: it records another trial than {out / 'trial.json'}",
            "choose another --out, or remove it",
        )
    return record


def read_record(path: Path) -> Record:
    """Read the record of a run; refuse a file that holds none."""
    contents = read_json(path)
    try:
        return Record.from_json(contents)
    except EquipoiseError as error:
        raise EquipoiseError(error.code, f"cannot read {path}: {error.problem}", REMOVE_RECORD_REMEDY) from error


def read_finished_run(run_folder: Path, verb: str) -> Record:
    """Read the record of a run that a command is to `verb`; refuse one that is unfinished, failed or has no model."""
    for name in ("record.json", "model.safetensors"):
        if not (run_folder / name).is_file():
            raise EquipoiseError(
                "run-unusable",
                f"cannot {verb} --run {run_folder}: it has no {name}",
                "give the folder of a finished run",
            )
    record = read_record(run_folder / "record.json")
    if record.failed or record.status == "running":
        raise EquipoiseError(
            "run-unusable",
            f"cannot {verb} --run {run_folder}: its status is {record.outcome}",
            "give a run that finished without failing",
        )
    return record


def require_same_config(out: Path, config: TrainConfig, changeable: Collection[str] = ()) -> None:
    """Refuse a folder that holds another trial, or files that no training run wrote.

    Trials are the same if they differ in no options but those named in `changeable`.
    """
    path = out / "trial.json"
    if not path.exists():
        if not out.is_dir() or not any(out.iterdir()):
            return
        raise EquipoiseError(
            "path-in-use", f"cannot write to {out}: it is not empty and holds no run", "choose another --out"
        )
    stored = read_json(path)
    if not isinstance(stored, dict):
        raise EquipoiseError(
            "run-damaged", f"cannot read {path}: it does not hold a trial", f"choose another --out, or remove {out}"
        )
    differences = [
        describe_difference(name, stored.get(name), value)
        for name, value in asdict(config).items()
        if stored.get(name) != value and name not in changeable
    ]
    if differences:
        has_model = (out / "model.safetensors").exists()
        continuation = f", with --init-from {out} to continue from the weights of this one," if has_model else ""
        raise EquipoiseError(
            "run-mismatch",
            f"cannot resume {out}: it holds another trial ({'; '.join(differences)})",
            f"choose another --out{continuation} or remove it",
        )


def describe_difference(name: str, stored: object, value: object) -> str:
    """Describe how an option of a run differs from what is asked for now; None stands for an option not given."""
    before = f"{name} was not given" if stored is None else f"{name} is {stored}"
    return f"{before}, {'now not given' if value is None else f'requested {value}'}"


def require_writable(out: Path) -> None:
    """Refuse a folder that cannot be created or written, without creating it."""
    if isinstance(out, RemotePath):
        require_writable_url(out)
        return
    with report_path_errors(f"cannot write to {str(out)[:80]}..."):  # such as a name that is too long
        out.exists()  # raises that error, which lexists takes for a path that does not exist
        existing = next(folder for folder in (out, *out.parents) if os.path.lexists(folder))
    if not existing.is_dir():
        reason = "is a symbolic link that leads to no folder" if existing.is_symlink() else "is a file, not a folder"
        raise EquipoiseError("path-kind", f"cannot write to {out}: {existing} {reason}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise EquipoiseError("path-access", f"cannot write to {out}: no permission to write in {existing}")
    with report_path_errors(f"cannot write to {out}: {existing} takes no files", "choose another folder"):
        tempfile.TemporaryFile(dir=existing).close()  # permissions do not show all, as in /proc or on a read-only disk


def require_writable_url(out: RemotePath) -> None:
    """Refuse a URL that cannot be written to, for example without its bucket or without credentials."""
    validate_location(str(out))
    probe = out / f".probe.{os.getpid()}"
    with report_path_errors(f"cannot write to {out}"), without_retries():
        probe.touch()
        probe.unlink(missing_ok=True)


@contextmanager
def claim_run_folder(out: Path, config: TrainConfig) -> Iterator[None]:
    """Create the folder, write its trial.json, and lock it against other commands while this one writes there."""
    with report_path_errors(f"cannot write to {out}"):  # a read-only or full disk, which permissions do not show
        write_json(out / "trial.json", asdict(config))
    with lock_folder(out):
        yield


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Lock a folder against other commands; a URL is not locked.

    The lock belongs to the operating system, which releases it however the process ends.
    """
    if isinstance(out, RemotePath):
        yield
        return
    with open_lock_file(out) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise EquipoiseError(
                "path-in-use",
                f"cannot write to {out}: another command is writing there",
                "wait for it, or choose another --out",
            ) from None
        yield


def open_lock_file(out: Path) -> BinaryIO:
    """Open the lock file of a folder, and create it if needed; refuse a pipe or a device of its name, or a link."""
    path, flags = out / LOCK_FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
    with report_path_errors(f"cannot write to {out}", f"remove {path}, or choose another --out"):
        lock = os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)
    if not stat.S_ISREG(os.fstat(lock.fileno()).st_mode):
        lock.close()
        raise EquipoiseError("path-kind", f"cannot write to {out}: {path} is not a file", "remove it")
    return lock
