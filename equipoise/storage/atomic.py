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

from equipoise.storage import object_store, retry
from equipoise.storage.object_store import Url


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the name `path` if nothing was raised."""
    if isinstance(path, Url):
        with tempfile.TemporaryDirectory(prefix="equipoise-") as beside:
            yield (copy := Path(beside, path.name))
            path.send(copy)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def folder(out: Path, last: str = "") -> Iterator[Path]:
    """A folder to fill beside `out`: it takes that name once all is in it, and goes if anything is raised.

    Behind a URL files come one by one, and `last` after all others: without it the folder is none yet.
    """
    if isinstance(out, Url):
        with sent(out, last) as temporary:
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
def sent(out: Url, last: str) -> Iterator[Path]:
    """A folder of this disk to fill, which goes behind a URL."""
    if out.exists():
        raise ValueError(f"{out} exists already: give another name, or remove it")
    with tempfile.TemporaryDirectory(prefix="equipoise-") as temporary:
        yield Path(temporary)
        for one in sorted(Path(temporary).iterdir(), key=lambda one: (one.name == last, one.name)):
            (out / one.name).send(one)


@contextmanager
def fetched(path: Path) -> Iterator[Path]:
    """A file of this disk that holds what `path` does: itself, or a copy for the length of the block."""
    if not isinstance(path, Url):
        require_file(path)
        path.open("rb").close()  # readers of other kinds have no word for a file that only others may read
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="equipoise-") as beside:
        path.fetch(copy := Path(beside, path.name))
        yield copy


def write_json(path: Path, facts: Any) -> None:
    """`facts` as JSON that any reader takes: a NaN is refused, not written."""
    text = json.dumps(facts, indent=1, allow_nan=False)
    with whole(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """What `path` holds, or one sentence on why it cannot be read."""
    require_file(path)
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError, IsADirectoryError) as error:
        why = f"{path} is not JSON ({error}): it was damaged, or another program wrote it"
        raise ValueError(f"{why}; put back what it was, or remove it") from None


def no_number(_: str) -> Any:
    """Refuse NaN and Infinity, which JSON has no words for and Python takes."""
    raise ValueError("a number in it is none")


def require_file(path: Path) -> None:
    """Refuse what would be waited for, such as a pipe."""
    if not isinstance(path, Url) and path.exists() and not path.is_file():
        raise ValueError(f"{path} is no file")


def stamp(path: str) -> str | None:
    """What is another once the file behind a path or URL is; None while there is none."""
    place = object_store.place(path)
    if isinstance(place, Url):
        with retry.at_once():
            return place.stamp()
    try:
        found = place.stat()
    except OSError:
        return None
    return f"{found.st_ino} {found.st_mtime_ns} {found.st_size}"


def local(path: str | Path) -> Path:
    """A folder on this disk that holds what `path` does: itself, or a copy of what is behind a URL (s3://, gs://)."""
    place = object_store.place(str(path))
    if not isinstance(place, Url):
        return place
    copy = Path(tempfile.mkdtemp(prefix="equipoise-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    try:
        with retry.at_once():
            names = [one for one in place.iterdir() if one.is_file()]
        for one in names:
            one.fetch(copy / one.name)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({type(error).__name__}: {error})") from None
    return copy
