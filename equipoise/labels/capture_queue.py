"""Queue of the captures of a service: what the model answered is the first guess, and the most useful come first.

A picture is named POOL-KEY-ID.png whether it is labelled or not: its file is renamed once the capture has a class.
"""

from pathlib import Path

from equipoise.captures.capture import CAPTURE_POOLS, CaptureName, labelling_priority
from equipoise.captures.file_listing import sort_capture_files
from equipoise.captures.store import CaptureStore
from equipoise.errors import EquipoiseError
from equipoise.labels.captured_labels import find_capture_id
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.queue import LabelQueue
from equipoise.labels.store import LabelStore

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
        for path in (self.folder / name, self.folder / f"{Path(name).stem}{LABELLED_MARK}.png"):
            if find_capture_id(name) and "/" not in name and path.is_file():
                return path
        raise EquipoiseError("path-missing", f"there is no capture {name[:80]!r}", "it has made room for others")


def list_capture_names(folder: Path) -> list[CaptureName]:
    """Return the names of the captures in a folder, the most useful to label first, without reading one."""
    file_names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(sort_capture_files(file_names).complete, key=labelling_priority)


def picture_name(name: CaptureName) -> str:
    """Return the name of a capture's picture in a labelling session."""
    return f"{name._replace(labelled=False).stem}.png"
