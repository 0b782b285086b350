"""Copies of data behind a URL on the disk of this machine, made once for all processes that read them.

A copy is complete or absent: objects arrive in a folder beside it, which is renamed when all are there. A copy that was
interrupted goes on with the objects that are missing.
"""

import fcntl
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from equipoise.errors import EquipoiseError
from equipoise.storage.location import validate_location
from equipoise.storage.object_listing import ObjectListing, StoredObject, list_objects
from equipoise.storage.object_store import open_filesystem
from equipoise.storage.path_errors import DISK_FULL_ERRNOS, report_path_errors
from equipoise.storage.retry import retry_while_unavailable

CACHE_FOLDER_VARIABLE = "EQUIPOISE_CACHE_DIR"
CACHE_REMEDY = f"set {CACHE_FOLDER_VARIABLE} to a folder with enough room"
PARALLEL_DOWNLOADS = 16
DOWNLOAD_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {"max_concurrency": 1}  # one request an object; ten parts of 50 MB at once would take 8 GB of memory
}

logger = logging.getLogger(__name__)


def is_url(location: str) -> bool:
    """Return whether data are copied to this machine before they are read, which file:// asks for as well."""
    return "://" in location


def find_cache_folder() -> Path:
    """Return the folder for copies on this machine: that of the environment, or one in the user's own cache."""
    if given := os.environ.get(CACHE_FOLDER_VARIABLE):
        return Path(given).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "equipoise"


def fetch_data(location: str, *, purpose: str = "", prepare: Callable[[Path], object] | None = None) -> Path:
    """Return a local folder with the data at a location: a path as it is, or a copy of what is below a URL.

    `prepare` completes a new copy, such as by unpacking it; copies for another `purpose` are others. Changed data are
    copied anew, and the older copy stays for those who read it.
    """
    validate_location(location)
    if not is_url(location):
        return Path(location)
    listing = list_objects(location)
    with report_path_errors(f"cannot keep a copy of {listing.url} on this machine", CACHE_REMEDY):
        entry = find_cache_folder() / "data" / name_entry(listing, purpose)
        files = entry / "files"
        if not files.is_dir():
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)  # pictures may show people
            with hold_lock(entry / ".lock"):
                if not files.is_dir():  # no other process made it meanwhile
                    make_copy(listing, entry, files, prepare)
    return files


def name_entry(listing: ObjectListing, purpose: str) -> str:
    """Return the name of a copy's folder: readable, and other for other URLs, contents and purposes."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", listing.url.rpartition("/")[2])[:40]
    return "-".join(filter(None, (readable, purpose, listing.digest[:24])))


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock of a file, after waiting for it; the operating system releases it however the process ends."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_copy(listing: ObjectListing, entry: Path, files: Path, prepare: Callable[[Path], object] | None) -> None:
    """Copy all objects of a listing to the folder `files`, which appears when they are complete."""
    partial, incoming = entry / "partial", entry / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)  # of a process that was killed
    for folder in (partial, incoming):
        folder.mkdir(exist_ok=True)
    missing = [item for item in listing.objects if not has_size(partial / item.name, item.size_bytes)]
    require_space(listing.url, missing, partial)
    missing_bytes = sum(item.size_bytes for item in missing)
    logger.warning(
        "copying %s objects (%.4g MB) of %s to %s", f"{len(missing):,}", missing_bytes / 1e6, listing.url, files
    )
    copy_objects(listing.url, missing, partial, incoming)
    if list_objects(listing.url) != listing:
        shutil.rmtree(partial)
        raise make_change_error(listing.url)
    if prepare is not None:
        prepare(partial)
    partial.rename(files)
    shutil.rmtree(incoming, ignore_errors=True)


def make_change_error(url: str) -> EquipoiseError:
    """Return the error of a copy whose parts may belong to different versions of the data."""
    return EquipoiseError(
        "dataset-unavailable",
        f"cannot copy {url}: it changed meanwhile",
        "run the same command again when nothing writes there any more",
    )


def has_size(path: Path, size_bytes: int) -> bool:
    """Return whether there is a file of this size."""
    return path.is_file() and path.stat().st_size == size_bytes


def require_space(url: str, objects: list[StoredObject], folder: Path) -> None:
    """Refuse to copy objects to a disk with less room than they take."""
    needed, free = sum(item.size_bytes for item in objects), shutil.disk_usage(folder).free
    if needed > free:
        raise EquipoiseError(
            "disk-full",
            f"cannot copy {url} to {folder.parent}: it takes {needed / 1e6:,.1f} MB, {free / 1e6:,.1f} MB are free",
            CACHE_REMEDY,
        )


def copy_objects(url: str, objects: list[StoredObject], folder: Path, incoming: Path) -> None:
    """Copy objects below a URL into a folder, several at once; the first error ends the copy."""
    filesystem, key = open_filesystem(url)  # once: fsspec would connect anew in each thread
    waiting, is_over = iter(objects), threading.Event()

    def copy_waiting() -> None:
        arriving = incoming / str(threading.get_ident())
        try:
            for item in waiting:  # shared by all threads
                if is_over.is_set():
                    return
                download_object(url, filesystem, f"{key.rstrip('/')}/{item.name}", arriving)
                if not has_size(arriving, item.size_bytes):
                    raise make_change_error(f"{url}/{item.name}")
                target = folder / item.name
                target.parent.mkdir(parents=True, exist_ok=True)
                arriving.rename(target)
        except BaseException:
            is_over.set()  # the other threads end with the objects that they are at
            raise

    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        copies = [pool.submit(copy_waiting) for _ in range(min(PARALLEL_DOWNLOADS, len(objects)))]
        try:
            for copy in copies:
                copy.result()
        finally:
            is_over.set()  # after Ctrl-C


def download_object(url: str, filesystem: Any, key: str, path: Path) -> None:
    """Download one object of those below a URL to a local file."""
    options = DOWNLOAD_OPTIONS.get(url.partition("://")[0], {})

    def download() -> None:
        try:
            filesystem.get_file(key, str(path), **options)
        except FileNotFoundError as error:
            raise make_change_error(url) from error
        except OSError as error:
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            problem = f"cannot copy {url} to {path.parents[1]}: {error.strerror}"
            raise EquipoiseError("disk-full", problem, CACHE_REMEDY) from error  # which retries would not resolve

    retry_while_unavailable(download, url)
