"""The folder of one run: whose it is, whether it can be written, and what came of it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from equipoise.config import TrainConfig
from equipoise.runs.record import RECORD_SCHEMA, Record
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.location import validate_location
from equipoise.storage.object_store import RemotePath
from equipoise.storage.retry import redacted_error_reason, without_retries

LOCK_FILE_NAME = ".lock"


def load_finished_run(out: Path, config: TrainConfig) -> Record | None:
    """The record that `out` holds of `trial`, if the trial has ended; refuses a folder of something else."""
    require_same_config(out, config)
    path = out / "record.json"
    if not path.exists():
        return None
    record = read_record(path)
    if record.config != config:
        raise ValueError(f"{path} is of another trial than {out / 'trial.json'}: choose another --out, or remove it")
    return record


def read_record(path: Path) -> Record:
    """The record in a file, or one sentence on why it is none."""
    facts = read_json(path)
    if not isinstance(facts, dict) or facts.get("schema") != RECORD_SCHEMA:
        raise ValueError(
            f"{path} is no record of schema {RECORD_SCHEMA}: remove it to train again from the last checkpoint"
        )
    try:
        return Record.from_json(facts)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged ({type(error).__name__}: {error}): remove it to train again from the last checkpoint"
        ) from error


def require_same_config(out: Path, config: TrainConfig) -> None:
    """Refuse a folder that holds another trial, or files that no run of ours wrote."""
    asked = out / "trial.json"
    if not asked.exists():
        if not out.is_dir() or not any(out.iterdir()):
            return
        raise ValueError(f"{out} is not empty and holds no run: choose another --out")
    held = read_json(asked)
    if not isinstance(held, dict):
        raise ValueError(f"{asked} does not hold a trial: choose another --out, or remove {out}")
    wanted = asdict(config)
    other = [f"{name} is {held.get(name)}, asked {wanted[name]}" for name in wanted if held.get(name) != wanted[name]]
    if other:
        raise ValueError(f"{out} holds another trial ({'; '.join(other)}): choose another --out, or remove it")


def require_writable(out: Path) -> None:
    """Refuse a folder that cannot be made or written, without making it."""
    if isinstance(out, RemotePath):
        require_writable_url(out)
        return
    try:
        there = next(place for place in (out, *out.parents) if place.exists())
    except OSError as error:  # such as a name that is too long
        raise ValueError(f"cannot write to {str(out)[:80]}...: {error.strerror}") from error
    if not there.is_dir():
        raise ValueError(f"cannot write to {out}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write to {out}: no permission to write in {there}")


def require_writable_url(out: RemotePath) -> None:
    """Refuse what is behind a URL if nothing can be put there, as none of its bucket, or without credentials."""
    validate_location(str(out))
    probe = out / f".probe.{os.getpid()}"
    try:
        with without_retries():
            probe.touch()
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write to {out}: {redacted_error_reason(error)}") from error


@contextmanager
def claim_run_folder(out: Path, config: TrainConfig) -> Iterator[None]:
    """Make the folder, say whose it is, and keep other commands out while this one writes there."""
    try:
        write_json(out / "trial.json", asdict(config))
    except OSError as error:  # a read-only or full file system, which permissions do not show
        raise ValueError(f"cannot write to {out}: {error.strerror or error}") from error
    with lock_folder(out):
        yield


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Keep other commands out of a folder. The lock is the operating system's: it goes with the process, however that
    ends. Behind a URL there is none."""
    if isinstance(out, RemotePath):
        yield
        return
    try:
        lock = (out / LOCK_FILE_NAME).open("w")
    except OSError as error:
        raise ValueError(f"cannot write to {out}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(f"another command is writing to {out}: wait for it, or choose another --out") from None
        yield
