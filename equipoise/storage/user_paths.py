"""Paths and URLs that a user gives to a command: empty strings, and URLs where only a path can be used, are refused."""

from collections.abc import Mapping
from pathlib import Path

from equipoise.errors import EquipoiseError
from equipoise.storage.location import redact_scheme, reject_credentials, split_scheme, validate_location
from equipoise.storage.object_store import RemotePath, parse_location


class PathText(str):
    """Path or URL as it was typed, for parsers of options that would report an error in it in words of their own."""

    __slots__ = ()


def parse_path_or_url(text: str) -> Path:
    """Parse a command-line path or URL; refuse an empty string, which would mean the current folder."""
    require_text(text)
    return parse_location(text)


def make_absolute(location: str) -> str:
    """Return a path as an absolute one, for processes with another working directory; a URL as it is."""
    return location if "://" in location else str(Path(location).absolute())


def require_text(text: str) -> None:
    """Refuse an empty path or URL."""
    if not text.strip():
        raise EquipoiseError("option-format", "got an empty string", "give a path or a URL")


def require_local_paths(path_by_option: Mapping[str, Path | str | None]) -> None:
    """Refuse URLs, and malformed or empty paths, for options that take a path on this machine.

    To be called before anything else is done, with the options as messages shall name them.
    """
    for option, given in path_by_option.items():
        if given is None:
            continue
        try:
            path = parse_path_or_url(given) if isinstance(given, str) else given
        except EquipoiseError as error:
            raise error.within(option) from error
        reject_credentials(str(path))
        if isinstance(path, RemotePath):
            url = redact_scheme(split_scheme(str(path))[0])
            raise EquipoiseError(
                "path-kind", f"{option} takes a path on this machine, {url}... is a URL", "give a file or a folder"
            )
        validate_location(str(path))
