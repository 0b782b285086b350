"""Command-line options that take a path on this machine or the URL of an object store."""

from pathlib import Path
from typing import Annotated

import tyro

from equipoise.errors import EquipoiseError
from equipoise.storage.location import require_lasting_store, validate_location
from equipoise.storage.user_paths import parse_path_or_url, require_text


def validate_locations(*locations: Path | str | None) -> None:
    """Refuse locations that are empty, contain a secret, are malformed or do not last.

    To be called before anything else is done.
    """
    for location in locations:
        if location is not None:
            require_text(str(location))
            validate_location(str(location))
            require_lasting_store(str(location))


def require_capture_folder(location: str) -> None:
    """Refuse a local folder of captures that does not exist; for a URL, listing it shows what it holds."""
    if "://" not in location and not Path(location).is_dir():
        raise EquipoiseError(
            "path-kind",
            f"cannot read --capture-dir {location}: it is not a folder",
            "give the one where the service keeps captures, which takes a bundle with a drift reference",
        )


def build_path_spec(metavar: str) -> tyro.constructors.PrimitiveConstructorSpec[Path | None]:
    """Build the parser of an option that takes a path."""
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda texts: parse_path_or_url(texts[0]),
        is_instance=lambda value: value is None or isinstance(value, Path),
        str_from_instance=lambda value: [str(value)],
    )


PathOrUrl = Annotated[Path, build_path_spec("PATH|URL")]
OptionalPathOrUrl = Annotated[Path | None, build_path_spec("PATH|URL")]
"""not `PathOrUrl | None`, where tyro hides the parser's errors behind those of the alternatives"""
LocalPath = Annotated[Path, build_path_spec("PATH")]
"""path on this machine; a URL is parsed too, so that `require_local_paths` can refuse it without its secrets"""
OptionalLocalPath = Annotated[Path | None, build_path_spec("PATH")]
