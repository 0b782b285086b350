"""Files that are whole or not there: written under a temporary name, then renamed, or put in one piece behind a URL."""

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from equipoise.storage.object_store import RemotePath, parse_location
from equipoise.storage.retry import without_retries


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the name `path` if nothing was raised."""
    if isinstance(path, RemotePath):
        with tempfile.TemporaryDirectory(prefix="equipoise-") as beside:
            yield (copy := Path(beside, path.name))
            path.upload_from(copy)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(out: Path, last_file: str = "") -> Iterator[Path]:
    """A folder to fill beside `out`: it takes that name once all is in it, and goes if anything is raised.

    Behind a URL files come one by one, and `last` after all others: without it the folder is none yet.
    """
    if isinstance(out, RemotePath):
        with upload_folder(out, last_file) as temporary:
            yield temporary
        return
    if os.path.lexists(out):
        raise ValueError(f"{out} exists already: give another name, or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    for left in out.parent.glob(f".{out.name}.*"):  # of a process that was killed
        if left.suffix[1:].isdigit() and not Path(f"/proc/{left.suffix[1:]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}")
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def upload_folder(out: RemotePath, last_file: str) -> Iterator[Path]:
    """A folder of this disk to fill, which goes behind a URL."""
    if out.exists():
        raise ValueError(f"{out} exists already: give another name, or remove it")
    with tempfile.TemporaryDirectory(prefix="equipoise-") as temporary:
        yield Path(temporary)
        for one in sorted(Path(temporary).iterdir(), key=lambda one: (one.name == last_file, one.name)):
            (out / one.name).upload_from(one)


@contextmanager
def open_local_copy(path: Path) -> Iterator[Path]:
    """A file of this disk that holds what `path` does: itself, or a copy for the length of the block."""
    if not isinstance(path, RemotePath):
        require_regular_file(path)
        path.open("rb").close()  # readers of other kinds have no word for a file that only others may read
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="equipoise-") as beside:
        path.download_to(copy := Path(beside, path.name))
        yield copy


def write_json(path: Path, contents: Any) -> None:
    """`facts` as JSON that any reader takes: a NaN is refused, not written."""
    text = json.dumps(contents, indent=1, allow_nan=False)
    with atomic_write(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """What `path` holds, or one sentence on why it cannot be read."""
    require_regular_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=reject_nan)
    except (ValueError, RecursionError, IsADirectoryError) as error:
        why = f"{path} is not JSON ({error}): it was damaged, or another program wrote it"
        raise ValueError(f"{why}; put back what it was, or remove it") from None


def reject_nan(_: str) -> Any:
    """Refuse NaN and Infinity, which JSON has no words for and Python takes."""
    raise ValueError("a number in it is none")


def require_regular_file(path: Path) -> None:
    """Refuse what would be waited for, such as a pipe."""
    if not isinstance(path, RemotePath) and path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file")


def file_fingerprint(path: str) -> str | None:
    """What is another once the file behind a path or URL is; None while there is none."""
    place = parse_location(path)
    if isinstance(place, RemotePath):
        with without_retries():
            return place.checksum()
    try:
        found = place.stat()
    except OSError:
        return None
    return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"


def download_folder(path: str | Path) -> Path:
    """A folder on this disk that holds what `path` does: itself, or a copy of what is behind a URL (s3://, gs://)."""
    place = parse_location(str(path))
    if not isinstance(place, RemotePath):
        return place
    copy = Path(tempfile.mkdtemp(prefix="equipoise-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    try:
        with without_retries():
            names = [one for one in place.iterdir() if one.is_file()]
        for one in names:
            one.download_to(copy / one.name)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error})") from None
    return copy
