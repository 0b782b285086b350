"""List the objects below a URL with what shows their versions, so that a copy of them can be told from an older one."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import PurePosixPath
from typing import Any

from equipoise.errors import EquipoiseError
from equipoise.storage.object_store import open_filesystem
from equipoise.storage.path_errors import report_path_errors
from equipoise.storage.retry import retry_while_unavailable

VERSION_KEYS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "updated", "mtime", "created")
"""entries of fsspec that change with an object, the best first: a digest of the content, else the time of a change"""
LISTING_OPTIONS: dict[str, dict[str, Any]] = {"file": {"on_error": "raise"}}
"""options of fsspec, which would leave out folders that it cannot read"""


@dataclass(frozen=True)
class StoredObject:
    """Object below a URL: its name relative to the URL, its size, and what changes with its content."""

    name: str
    size_bytes: int
    version: str


@dataclass(frozen=True)
class ObjectListing:
    """All objects below a URL at one moment, in the order of their names."""

    url: str
    objects: tuple[StoredObject, ...]

    @property
    def total_bytes(self) -> int:
        """Size of all objects together."""
        return sum(item.size_bytes for item in self.objects)

    @cached_property
    def digest(self) -> str:
        """Digest of the URL and of the names, sizes and versions of its objects."""
        facts = [self.url, *((item.name, item.size_bytes, item.version) for item in self.objects)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def list_objects(url: str) -> ObjectListing:
    """List all objects below a URL; refuse one with nothing below it, and names that no folder can hold."""
    url = url.rstrip("/")
    filesystem, key = open_filesystem(url)
    options = LISTING_OPTIONS.get(url.partition("://")[0], {})
    with report_path_errors(f"cannot read {url}"):
        entries = retry_while_unavailable(lambda: filesystem.find(key, detail=True, **options), url)
    entry_by_name = {
        path.strip("/")[len(key.strip("/")) :].removeprefix("/"): entry
        for path, entry in sorted(entries.items())
        if not path.endswith("/") and entry["type"] != "directory"  # the mark of an empty folder
    }
    if not entry_by_name:
        raise EquipoiseError("path-missing", f"cannot read {url}: there is no object below it")
    require_copyable(url, entry_by_name)
    return ObjectListing(
        url,
        tuple(StoredObject(name, int(entry["size"]), find_version(entry)) for name, entry in entry_by_name.items()),
    )


def find_version(entry: Mapping[str, Any]) -> str:
    """Return the first of the entries that change with an object; its size alone is compared without any."""
    return next((str(entry[key]) for key in VERSION_KEYS if entry.get(key)), "")


def require_copyable(url: str, entry_by_name: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a single object, links, names that would leave the copy, and a name that is the folder of others."""
    if "" in entry_by_name:
        raise EquipoiseError("path-kind", f"cannot read {url}: it is a single object", "give the URL of its folder")
    folders = set(chain.from_iterable(PurePosixPath(name).parents for name in entry_by_name))
    for name, entry in entry_by_name.items():
        if entry["type"] != "file":
            reason = "is a link, or no regular file"
        elif any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
            reason = "cannot be the name of a file"
        elif PurePosixPath(name) in folders:
            reason = "has others below it"
        else:
            continue
        raise EquipoiseError("dataset-invalid", f"cannot copy {url}: {name!a} {reason}", "remove or rename it")
