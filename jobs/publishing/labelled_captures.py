"""Labels of requests that a model is adapted with: given over HTTP, or on the labelling page as classes or boxes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from equipoise.boxes.box import BoxedDataset, BoxedPicture
from equipoise.boxes.formats.coco import write_coco
from equipoise.bundle.bundle import PictureBundle
from equipoise.bundle.kinds.boxes_bundle import BoxesBundle
from equipoise.captures.store import CaptureStore
from equipoise.drift.diagnosis.verdict import Verdict
from equipoise.errors import EquipoiseError
from equipoise.labels.captured_labels import CapturedLabels, read_captured_labels
from equipoise.labels.exchange import COCO_FILE
from equipoise.storage.atomic import atomic_folder


@dataclass(frozen=True, kw_only=True)
class LabelSources:
    """Where the requests and their labels are."""

    capture_dir: str | None = None
    """folder or URL of the captures"""
    labels: Path | None = None
    """folder of the labels that were given on the labelling page"""

    def __post_init__(self) -> None:
        if self.labels is not None and self.capture_dir is None:
            raise EquipoiseError(
                "option-missing",
                "cannot use --labels: --capture-dir is missing",
                "give the captures that were labelled",
            )


def count_labels(sources: LabelSources, model: PictureBundle, verdict: Verdict) -> int:
    """Count the captures since the drift began that are labelled, with the model's classes only."""
    if sources.capture_dir is None:
        return 0
    captures, since = CaptureStore(sources.capture_dir), verdict.onset_seconds
    if isinstance(model, BoxesBundle):
        return len(list_boxed_captures(captures, sources, model.classes, since))
    given = list_class_labels(captures, sources, since)
    rows = captures.list_captures(limit=None)
    return sum((row.label_given or given.get(row.id)) in model.classes and row.at >= since for row in rows)


def export_labels(sources: LabelSources, model: PictureBundle, verdict: Verdict, out: Path) -> int:
    """Write the labelled captures to a new folder, as an adaptation reads them, and return their number."""
    if sources.capture_dir is None or not count_labels(sources, model, verdict):
        return 0
    captures, since = CaptureStore(sources.capture_dir), verdict.onset_seconds
    if isinstance(model, BoxesBundle):
        return export_boxes(captures, list_boxed_captures(captures, sources, model.classes, since), model.classes, out)
    given = list_class_labels(captures, sources, since)
    return sum(captures.export_labelled(out, model.classes, since, given).values())


def list_class_labels(captures: CaptureStore, sources: LabelSources, since: float) -> dict[str, str]:
    """Return the classes that captures were given on the labelling page, by id."""
    if sources.labels is None:
        return {}
    entries = read_captured_labels(captures, sources.labels, "class", since)
    return {entry.metadata.id: str(entry.labels.label) for entry in entries}


def list_boxed_captures(
    captures: CaptureStore, sources: LabelSources, classes: Sequence[str], since: float
) -> list[CapturedLabels]:
    """Return the captures with boxes; those with a box of another class are left out, where it would be background."""
    if sources.labels is None:
        return []
    entries = read_captured_labels(captures, sources.labels, "boxes", since)
    return [entry for entry in entries if {*entry.labels.class_names()} <= {*classes}]


def export_boxes(captures: CaptureStore, entries: Sequence[CapturedLabels], classes: Sequence[str], out: Path) -> int:
    """Write captures and their boxes, as COCO's JSON, to a new folder, and return their number."""
    images = captures.read_images([entry.metadata.id for entry in entries])
    kept = [entry for entry in entries if entry.metadata.id in images]
    pictures = tuple(
        BoxedPicture(f"{entry.metadata.id}.png", entry.labels.width, entry.labels.height, entry.labels.boxes or ())
        for entry in kept
    )
    with atomic_folder(out) as folder:
        for entry in kept:
            (folder / f"{entry.metadata.id}.png").write_bytes(images[entry.metadata.id])
        write_coco(BoxedDataset(tuple(classes), pictures), folder / COCO_FILE)
    return len(kept)
