"""Output folder of a command that measures on the cluster and writes what it measured when it ends."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from equipoise.command_line import STOPPED
from equipoise.errors import EquipoiseError
from equipoise.runs.folder import lock_folder, require_writable
from equipoise.storage.atomic import find_output_file
from equipoise.storage.object_store import RemotePath
from jobs.cli.output_folder import ResultKind, require_no_other_results
from jobs.cluster.resources import (
    exit_at_once,
    kill_own_ray,
    warn_if_temporary_folder,
)

RAY_FOLDER = ".measurement-ray"  # deleted at the end, so a name that nobody else gives a folder


def require_measurement_output(out: Path, kind: ResultKind, file_names: Sequence[str]) -> Path:
    """Return --out as an absolute path; refuse one that these files cannot be written to, before time is spent."""
    warn_if_temporary_folder(out)
    absolute = out.absolute()
    require_no_other_results(absolute, kind)
    require_writable(absolute)
    require_file_places(absolute, file_names)
    return absolute


def require_file_places(out: Path, file_names: Sequence[str]) -> None:
    """Refuse an output folder that has another folder or a device where a file is to be written."""
    try:
        for name in file_names:
            find_output_file(out / name)
    except EquipoiseError as error:
        raise EquipoiseError(error.code, error.problem, "remove it, or choose another --out") from error


@contextmanager
def open_measurement_output(out: Path) -> Iterator[Path]:
    """Lock the output folder and yield the folder in it that Ray Train writes to, which is deleted at the end.

    Ctrl-C ends the process and the workers at once: the thread that waits for them would keep it until they end.
    """
    out.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(out), clean_up_ray_folder(out):
            yield out / RAY_FOLDER
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        exit_at_once(STOPPED)


@contextmanager
def clean_up_ray_folder(out: Path) -> Iterator[None]:
    """Delete the folder that Ray Train wrote to, of which nothing is of use later."""
    try:
        yield
    except KeyboardInterrupt:
        kill_own_ray()  # else it could write to its folder once more
        raise
    finally:
        if not isinstance(out, RemotePath):
            shutil.rmtree(out / RAY_FOLDER, ignore_errors=True)
