"""Atomic files and folders: written under a temporary name, then renamed, or put in one piece behind a URL."""

import atexit
import errno
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_native_id
from typing import Any

from equipoise.errors import EquipoiseError
from equipoise.storage.object_store import RemotePath, parse_location
from equipoise.storage.path_errors import report_path_errors
from equipoise.storage.retry import without_retries

DISK_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""errors of a write that name no file"""


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it is renamed to `path` if the block raises nothing.

    A symbolic link at `path` stays, and the file that it leads to is replaced.
    """
    if isinstance(path, RemotePath):
        with tempfile.TemporaryDirectory(prefix="equipoise-") as folder:
            copy = Path(folder, path.name)
            with name_output_in_errors(copy, copy):
                yield copy
            path.upload_from(copy)
        return
    target = find_output_file(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{get_native_id()}")  # two threads may write one file
    with name_output_in_errors(path, temporary):
        try:
            yield temporary
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)


def find_output_file(path: Path) -> Path:
    """Return the file that a write to `path` replaces: `path` itself, or what a symbolic link there leads to.

    Refuse anything else than a regular file: a device or a pipe would be replaced by a file, for all programs.
    """
    if isinstance(path, RemotePath):
        return path
    reason, remedy = "", "give the name of a file"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if not path.is_symlink():
            return path
        reason, remedy = "it is a symbolic link to nothing", "remove it, or give another name"
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        reason, remedy = "it is a symbolic link that leads back to itself", "remove it, or give another name"
    else:
        if stat.S_ISREG(mode):
            return Path(os.path.realpath(path)) if path.is_symlink() else path
        reason = "it is a folder" if stat.S_ISDIR(mode) else "it is neither a file nor a folder"
    raise EquipoiseError("path-kind", f"cannot write {path}: {reason}", remedy)


@contextmanager
def name_output_in_errors(out: Path, temporary: Path) -> Iterator[None]:
    """Make OSErrors of the block name `out`, where they name the temporary path or, as those of a full disk, none."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno in DISK_ERRNOS:
            error.filename = str(out)
        elif isinstance(error.filename, str | bytes | os.PathLike):
            named = Path(os.fsdecode(error.filename))
            if named.is_relative_to(temporary):
                error.filename, error.filename2 = str(out / named.relative_to(temporary)), None
        raise


@contextmanager
def atomic_folder(out: Path, last_file: str = "") -> Iterator[Path]:
    """Yield a temporary folder to fill; it is renamed to `out` after the block, or removed if the block raises.

    Behind a URL files are uploaded one by one and `last_file` after all others: readers take the folder for complete
    once it is there.
    """
    if isinstance(out, RemotePath):
        with upload_folder(out, last_file) as temporary:
            yield temporary
        return
    if os.path.lexists(out):
        raise EquipoiseError("path-exists", f"cannot write {out}: it exists already", "give another name, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    for leftover in out.parent.glob(f".{out.name}.*"):  # from a process that was killed
        if leftover.suffix[1:].isdigit() and not Path(f"/proc/{leftover.suffix[1:]}").exists():
            shutil.rmtree(leftover, ignore_errors=True)
    temporary = out.with_name(f".{out.name}.{get_native_id()}")
    with name_output_in_errors(out, temporary):
        temporary.mkdir()
        try:
            yield temporary
            temporary.rename(out)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def upload_folder(out: RemotePath, last_file: str) -> Iterator[Path]:
    """Yield a temporary local folder to fill; its files are uploaded after the block."""
    if out.exists():
        raise EquipoiseError("path-exists", f"cannot write {out}: it exists already", "give another name, or remove it")
    with tempfile.TemporaryDirectory(prefix="equipoise-") as temporary:
        with name_output_in_errors(Path(temporary), Path(temporary)):
            yield Path(temporary)
        for file in sorted(Path(temporary).iterdir(), key=lambda file: (file.name == last_file, file.name)):
            (out / file.name).upload_from(file)


@contextmanager
def open_local_copy(path: Path) -> Iterator[Path]:
    """Yield a local file with the content of `path`: the file itself, or a copy that lives as long as the block."""
    if not isinstance(path, RemotePath):
        require_regular_file(path)
        path.open("rb").close()  # raises PermissionError here, which the parsers of other libraries do not
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="equipoise-") as folder:
        path.download_to(copy := Path(folder, path.name))
        yield copy


def write_json(path: Path, contents: Any) -> None:
    """Write contents atomically as strict JSON; raise ValueError for NaN and Infinity."""
    text = json.dumps(contents, indent=1, allow_nan=False)
    with atomic_write(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read the JSON in a file; refuse a file that is not valid JSON."""
    require_regular_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=reject_nan)
    except EquipoiseError:  # of the store
        raise
    except (ValueError, RecursionError, IsADirectoryError) as error:
        reason = f"it is not valid JSON ({error}), so it is damaged or another program wrote it"
        raise EquipoiseError("file-damaged", f"cannot read {path}: {reason}", "restore it, or remove it") from None


def reject_nan(_: str) -> Any:
    """Refuse NaN and Infinity, which Python accepts although JSON does not have them."""
    raise ValueError("NaN and Infinity are not allowed")


def require_regular_file(path: Path) -> None:
    """Refuse a path that exists and is not a regular file, since reading a pipe would block."""
    if not isinstance(path, RemotePath) and path.exists() and not path.is_file():
        raise EquipoiseError("path-kind", f"cannot read {path}: it is not a regular file")


def file_fingerprint(path: str) -> str | None:
    """Return a string that changes whenever the file behind a path or URL does; None while there is no file."""
    location = parse_location(path)
    if isinstance(location, RemotePath):
        with without_retries():
            return location.checksum()
    try:
        status = location.stat()
    except OSError:
        return None
    return f"{status.st_ino} {status.st_mtime_ns} {status.st_size}"


def download_folder(path: str | Path) -> Path:
    """Return a local folder with the files of `path`: the folder itself, or a copy of what is behind a URL."""
    location = parse_location(str(path))
    if not isinstance(location, RemotePath):
        return location
    copy = Path(tempfile.mkdtemp(prefix="equipoise-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    with report_path_errors(f"cannot read {path}"):
        with without_retries():
            files = [file for file in location.iterdir() if file.is_file()]
        for file in files:
            file.download_to(copy / file.name)
    return copy
