"""Labels that people gave to the captures of a service on the labelling page, found by the id in a picture's name."""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from equipoise.captures.capture import IMAGE_FILE_PATTERN, CaptureMetadata
from equipoise.captures.store import CaptureStore
from equipoise.errors import EquipoiseError
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.store import LabelStore


@dataclass(frozen=True, kw_only=True)
class CapturedLabels:
    """Labels of one capture, with what is known of its request."""

    metadata: CaptureMetadata
    labels: PictureLabels


def read_captured_labels(captures: CaptureStore, folder: Path, kind: str, since: float = 0.0) -> list[CapturedLabels]:
    """Read the labels of captures from a Unix time on; refuse a folder without labels, or with those of another kind.

    Labels of other pictures are left out, and so are those whose capture is gone.
    """
    store = LabelStore(folder)
    stored_kind = store.read_classes()[0]
    if stored_kind is None:
        raise EquipoiseError(
            "path-missing",
            f"cannot read --labels {folder}: it holds no labels",
            f"label the captures with equipoise label --images {captures.location} --out {folder}",
        )
    if stored_kind != kind:
        raise EquipoiseError(
            "option-conflict",
            f"cannot use --labels {folder}: it holds labels of kind {stored_kind}, and the model needs {kind}",
            f"label the captures with --kind {kind} in another folder",
        )
    metadata_by_id = {metadata.id: metadata for metadata in captures.list_captures(limit=None)}
    pairs = [(metadata_by_id.get(find_capture_id(labels.picture)), labels) for labels in store.read_all()[0]]
    return [CapturedLabels(metadata=found, labels=labels) for found, labels in pairs if found and found.at >= since]


def find_capture_id(picture: str) -> str:
    """Return the id of the capture that a picture is; an empty one for other pictures."""
    match = IMAGE_FILE_PATTERN.fullmatch(PurePosixPath(picture).name)
    return match[3] if match else ""
