"""Command-line options that take a path on this machine or the URL of an object store."""

from pathlib import Path
from typing import Annotated

import tyro

from equipoise.errors import EquipoiseError
from equipoise.storage.location import validate_location
from equipoise.storage.object_store import parse_location


def parse_path_or_url(text: str) -> Path:
    """Parse a command-line path or URL; refuse an empty string, which would mean the current folder."""
    if not text.strip():
        raise EquipoiseError("option-format", "got an empty string", "give a path or a URL")
    return parse_location(text)


def validate_locations(*locations: Path | str | None) -> None:
    """Refuse locations that contain a secret or are malformed; to be called before anything else is done."""
    for location in locations:
        validate_location(str(location or ""))


def require_capture_folder(location: str) -> None:
    """Refuse a local folder of captures that does not exist; for a URL, listing it shows what it holds."""
    if "://" not in location and not Path(location).is_dir():
        raise EquipoiseError(
            "path-kind",
            f"cannot read --capture-dir {location}: it is not a folder",
            "give the one where the service keeps captures",
        )


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
