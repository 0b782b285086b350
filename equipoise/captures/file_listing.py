"""Which files of a folder are captures, which of these somebody is labelling elsewhere, and which are neither.

A page on which people draw boxes writes an empty file beside a capture that they open, POOL-KEY-ID.held. From then on
it is kept like a labelled one, so that no label is given to an image that has made room for others meanwhile.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from equipoise.captures.capture import IMAGE_FILE_PATTERN, METADATA_FILE_PATTERN, CaptureName

HELD_SUFFIX = ".held"


@dataclass(frozen=True, kw_only=True)
class CaptureListing:
    """Files of a folder of captures."""

    complete: list[CaptureName]
    """captures with both of their files"""
    held_ids: frozenset[str]
    """ids of captures that somebody labels elsewhere"""
    others: frozenset[str]
    """names of all other files"""

    def makes_room(self, name: CaptureName) -> bool:
        """Return whether a capture may be removed to make room for others."""
        return not name.labelled and name.id not in self.held_ids


def sort_capture_files(file_names: Iterable[str]) -> CaptureListing:
    """Return which of the files of a folder are captures."""
    files = frozenset(file_names)
    matches = filter(None, map(METADATA_FILE_PATTERN.fullmatch, files))
    names = [CaptureName(match[1], float(match[2]), match[3], bool(match[4])) for match in matches]
    names = [name for name in names if f"{name.stem}.png" in files]
    labelled = {name.id for name in names if name.labelled}
    complete = [name for name in names if name.labelled or name.id not in labelled]
    held = [name for name in complete if held_file_name(name) in files]
    known = {f"{name.stem}{suffix}" for name in complete for suffix in (".png", ".json")}
    return CaptureListing(
        complete=complete,
        held_ids=frozenset(name.id for name in held),
        others=files - known - {held_file_name(name) for name in held},
    )


def held_file_name(name: CaptureName) -> str:
    """Return the name of the file that says that a capture is being labelled elsewhere."""
    return f"{name._replace(labelled=False).stem}{HELD_SUFFIX}"


def hold_capture(image: Path) -> None:
    """Keep the capture of an image file from making room for others; nothing happens to other images.

    Neither does it if the folder cannot be written: the image can be labelled all the same.
    """
    if (match := IMAGE_FILE_PATTERN.fullmatch(image.name)) and not match[4]:
        with suppress(OSError):
            image.with_suffix(HELD_SUFFIX).touch(mode=0o600)
