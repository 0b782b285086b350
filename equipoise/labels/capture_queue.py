"""Queue of the captures of a service: what the model answered is the first guess, and the most useful come first.

A picture is named POOL-KEY-ID.png whether it is labelled or not: its file is renamed once the capture has a class.
"""

from pathlib import Path

from equipoise.captures.capture import (
    CAPTURE_ID_PATTERN,
    CAPTURE_POOLS,
    METADATA_FILE_PATTERN,
    CaptureName,
    labelling_priority,
)
from equipoise.captures.store import CaptureStore
from equipoise.errors import EquipoiseError
from equipoise.labels.guesses import Guess, parse_guess
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.queue import LabelQueue
from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import read_json

LABELLED_MARK = "-labelled"


class CaptureLabelStore(LabelStore):
    """Labels of captures: a class is written into the capture too, where `equipoise adapt` reads it."""

    def __init__(self, folder: Path, captures: CaptureStore) -> None:
        super().__init__(folder)
        self.captures = captures

    def list_labelled(self) -> set[str]:
        """Return the names of the captures with labels, those that got a class in another way included."""
        names = list_capture_names(Path(self.captures.location))
        classified = {picture_name(name) for name in names if name.labelled}
        return super().list_labelled() | classified

    def save_labels(self, labels: PictureLabels, base_revision: int) -> PictureLabels:
        """Save labels as any picture's, and then the class of a picture in its capture."""
        saved = super().save_labels(labels, base_revision)
        if saved.label is not None:
            self.captures.label_capture(find_capture_id(saved.picture), saved.label, self.read_classes()[1])
        return saved


class CaptureQueue(LabelQueue):
    """Captures in the order in which their labels are most useful: those since an alarm first, then uncertain ones."""

    def list_pictures(self) -> list[str]:
        """Return the names of all captures; uniform samples of the requests, in folders below, are none."""
        return [picture_name(name) for name in list_capture_names(self.folder)]

    def priority(self, name: str) -> tuple[bool, float]:
        """Return what captures are sorted by: their pool, then their key, which is large for uncertain answers."""
        pool, key, _ = Path(name).stem.split("-")[:3]
        return pool != CAPTURE_POOLS[0], 1 - float(key)

    def require_picture(self, name: str) -> Path:
        """Return the file of a capture, which has another name once it has a class; refuse any other name."""
        find_capture_id(name)
        for path in (self.folder / name, self.folder / f"{Path(name).stem}{LABELLED_MARK}.png"):
            if "/" not in name and path.is_file():
                return path
        raise EquipoiseError("path-missing", f"there is no capture {name[:80]!r}", "it has made room for others")


def list_capture_names(folder: Path) -> list[CaptureName]:
    """Return the names of the captures in a folder, the most useful to label first, without reading one."""
    files = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    matches = filter(None, map(METADATA_FILE_PATTERN.fullmatch, files))
    names = [CaptureName(match[1], float(match[2]), match[3], bool(match[4])) for match in matches]
    complete = [name for name in names if f"{name.stem}.png" in files]
    labelled = {name.id for name in complete if name.labelled}
    return sorted((name for name in complete if name.labelled or name.id not in labelled), key=labelling_priority)


def picture_name(name: CaptureName) -> str:
    """Return the name of a capture's picture in a labelling session."""
    return f"{name._replace(labelled=False).stem}.png"


def find_capture_id(picture: str) -> str:
    """Return the id of the capture that a picture's name belongs to; refuse any other name."""
    parts = Path(picture).stem.split("-")
    if len(parts) != 3 or parts[0] not in CAPTURE_POOLS or not CAPTURE_ID_PATTERN.fullmatch(parts[2]):
        raise EquipoiseError("path-missing", f"there is no capture {picture[:80]!r}", "it has made room for others")
    return parts[2]


def read_capture_guess(image: Path) -> Guess:
    """Return what the model answered when the image of a capture was a request, from the file beside it."""
    return parse_guess(read_json(image.with_suffix(".json")), f"the answer of {image.name}")
