"""The folder of one run: whose it is, whether it can be written, and what came of it."""

import os
from dataclasses import asdict
from pathlib import Path

from equipoise import store
from equipoise.record import Record
from equipoise.trial import Trial


def finished(out: Path, trial: Trial) -> Record | None:
    """The record that `out` holds of `trial`, if the trial has ended; refuses a folder of something else."""
    require_ours(out, trial)
    record = out / "record.json"
    return Record.from_json(store.read_json(record)) if record.exists() else None


def require_ours(out: Path, trial: Trial) -> None:
    """Refuse a folder that holds another trial, or files that no run of ours wrote."""
    if not out.is_dir() or not any(out.iterdir()):
        return
    asked = out / "trial.json"
    if not asked.exists():
        raise ValueError(f"{out} is not empty and holds no run: choose another --out")
    held = store.read_json(asked)
    wanted = asdict(trial)
    other = [f"{name} is {held.get(name)}, asked {wanted[name]}" for name in wanted if held.get(name) != wanted[name]]
    if other:
        raise ValueError(f"{out} holds another trial ({'; '.join(other)}): choose another --out, or remove it")


def require_writable(out: Path) -> None:
    """Refuse a folder that cannot be made or written, without making it."""
    there = next(place for place in (out, *out.parents) if place.exists())
    if not there.is_dir():
        raise ValueError(f"cannot write to {out}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {out}: no permission to write in {there}")


def claim(out: Path, trial: Trial) -> None:
    """Make the folder and say whose it is."""
    try:
        store.write_json(out / "trial.json", asdict(trial))
    except OSError as error:  # a read-only or full file system, which permissions do not show
        raise ValueError(f"cannot write to {out}: {error.strerror}") from error
