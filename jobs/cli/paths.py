"""What is given on a command line where a folder is asked for: a path of this disk, or a URL."""

from pathlib import Path
from typing import Annotated

import tyro

from equipoise.storage.location import validate_location
from equipoise.storage.object_store import parse_location


def parse_path_or_url(text: str) -> Path:
    """It; an empty word would be taken for the folder at hand."""
    if not text.strip():
        raise ValueError("a path or a URL was asked for, got nothing")
    return parse_location(text)


def validate_locations(*locations: Path | str | None) -> None:
    """Refuse, before anything is done, places that hold a secret or are not written as one."""
    for one in locations:
        validate_location(str(one or ""))


def require_capture_folder(location: str) -> None:
    """Refuse a folder of captures that is not there; whether a store holds anything is seen by listing it."""
    if "://" not in location and not Path(location).is_dir():
        raise ValueError(f"--capture-dir {location} is not a folder: give the one that the service keeps captures in")


def describe_os_error(error: OSError) -> str:
    """Why a place cannot be read or written, in a sentence."""
    if error.filename is None or error.strerror is None:
        return str(error)
    return f"{str(error.filename)[:200]} cannot be used ({error.strerror}): see to it, or give another"


PathOrUrl = Annotated[
    Path,
    tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH|URL",
        instance_from_str=lambda texts: parse_path_or_url(texts[0]),
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    ),
]
