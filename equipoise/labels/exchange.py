"""Labels in the formats of other programs: a data set to train on, and labels that were given elsewhere."""

import os
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from equipoise.boxes.box import BoxedDataset, BoxedPicture
from equipoise.boxes.folder import read_boxed_folder
from equipoise.boxes.formats.coco import write_coco
from equipoise.boxes.formats.voc import write_voc
from equipoise.boxes.formats.yolo import NAME_FILES, label_path, write_yolo
from equipoise.boxes.problems import DataProblems, Problem, ProblemKind, count_problems
from equipoise.captures.labels import require_folder_name
from equipoise.errors import EquipoiseError
from equipoise.images.orientation import read_upright_size
from equipoise.images.png import PILLOW_ERRORS
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.pictures import list_pictures
from equipoise.labels.store import LabelConflict, LabelStore
from equipoise.storage.atomic import atomic_folder

EXPORT_FORMATS = {"coco": "boxes", "yolo": "boxes", "voc": "boxes", "folder": "class"}
"""kind of labels that each format holds"""
COCO_FILE = "annotations.json"
IMPORT_AUTHOR = "imported"


@dataclass(frozen=True, kw_only=True)
class ExchangeSummary:
    """What was exported or imported, and what was left out."""

    pictures: int
    by_class: dict[str, int]
    """boxes, or pictures, of each class"""
    problems: DataProblems


def export_labels(store: LabelStore, images: Path, format_name: str, out: Path) -> ExchangeSummary:
    """Write a data set of all labelled pictures to a new folder: the pictures, and their labels in a format.

    The pictures are further links to the same files where the disk allows it, otherwise copies.
    """
    labelled, problems = collect_labels(store, images, EXPORT_FORMATS[format_name])
    if format_name == "yolo":  # which holds no sizes: whoever reads it could not see that a picture was turned since
        changed = {entry.picture for entry in labelled if has_other_size(images / entry.picture, entry)}
        labelled = [entry for entry in labelled if entry.picture not in changed]
        problems += count_problems(Problem(ProblemKind.SIZE_DIFFERS, name) for name in sorted(changed))
    if not labelled:
        raise EquipoiseError("captures-empty", f"cannot export {store.folder}: it holds no labels of a picture")
    if format_name in ("yolo", "voc"):
        require_different_files([labels.picture for labels in labelled], format_name)
    with atomic_folder(out) as folder:
        if format_name == "folder":
            write_class_folders(labelled, images, folder)
        else:
            dataset = build_dataset(store, labelled)
            for picture in dataset.pictures:
                link_or_copy(images / picture.file_name, folder / picture.file_name)
            problems += write_boxes(dataset, format_name, folder)
    return ExchangeSummary(pictures=len(labelled), by_class=count_classes(labelled), problems=problems)


def collect_labels(store: LabelStore, images: Path, kind: str) -> tuple[list[PictureLabels], DataProblems]:
    """Return the labels of a kind whose pictures exist; report those without picture, and broken label files."""
    stored_kind = store.read_classes()[0]
    if stored_kind not in (None, kind):
        raise EquipoiseError(
            "option-conflict",
            f"cannot export {store.folder}: the format holds labels of kind {kind}, these are of kind {stored_kind}",
            f"choose {' or '.join(name for name, holds in EXPORT_FORMATS.items() if holds == stored_kind)}",
        )
    names = set(list_pictures(images))
    labels, broken = store.read_all()
    problems = [Problem(ProblemKind.FILE_BROKEN, sentence) for sentence in broken]
    problems += [Problem(ProblemKind.LABELS_WITHOUT_PICTURE, x.picture) for x in labels if x.picture not in names]
    unlabelled = sorted(names - {entry.picture for entry in labels})
    problems += [Problem(ProblemKind.PICTURE_WITHOUT_LABELS, name) for name in unlabelled]
    return [entry for entry in labels if entry.picture in names and entry.kind == kind], count_problems(problems)


def build_dataset(store: LabelStore, labelled: Sequence[PictureLabels]) -> BoxedDataset:
    """Return boxes as a data set, whose classes are those of the store in their order."""
    used = {name for labels in labelled for name in labels.class_names()}
    classes = store.read_classes()[1]
    pictures = tuple(BoxedPicture(x.picture, x.width, x.height, x.boxes or ()) for x in labelled)
    return BoxedDataset((*classes, *sorted(used - {*classes})), pictures)


def write_boxes(dataset: BoxedDataset, format_name: str, folder: Path) -> DataProblems:
    """Write the boxes of a data set beside its pictures, and return what the format cannot hold."""
    if format_name == "yolo":
        return write_yolo(dataset, folder)
    if format_name == "voc":
        write_voc(dataset, folder)
    else:
        write_coco(dataset, folder / COCO_FILE)
    return DataProblems()


def write_class_folders(labelled: Sequence[PictureLabels], images: Path, folder: Path) -> None:
    """Write pictures as CLASS/NAME; folders of the name become part of it, so that none hides another."""
    for labels in labelled:
        require_folder_name(str(labels.label))
        link_or_copy(images / labels.picture, folder / str(labels.label) / labels.picture.replace("/", "__"))


def link_or_copy(source: Path, target: Path) -> None:
    """Make a file appear in a second place: as a link on the same disk, otherwise as a copy; refuse a place in use.

    To write over a link would be to write into the file that it shares.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        raise EquipoiseError(
            "labels-invalid",
            f"cannot export {source}: {target.parent.name}/{target.name} is the name of two pictures",
            "rename one of them with its labels",
        )
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


def require_different_files(names: Sequence[str], format_name: str) -> None:
    """Refuse pictures whose labels would be one file, such as a.jpg and a.png, or the one with the names of classes."""
    pictures: dict[str, str] = {}
    for name in names:
        file = label_path(name) if format_name == "yolo" else str(PurePosixPath(name).with_suffix(".xml"))
        other = pictures.setdefault(file, name)
        is_taken = format_name == "yolo" and PurePosixPath(file).name.lower() in NAME_FILES
        if other != name or is_taken:
            owner = "the names of the classes" if is_taken else f"those of {other}"
            raise EquipoiseError(
                "labels-invalid",
                f"cannot export as {format_name}: the labels of {name} and {owner} would be one file, {file}",
                "rename a picture with its labels, or export as coco",
            )


def count_classes(labelled: Sequence[PictureLabels]) -> dict[str, int]:
    """Count the boxes, or the pictures, of each class."""
    names = [x.label for x in labelled if x.label is not None]
    return dict(sorted(Counter([*names, *(box.label for x in labelled for box in x.boxes or ())]).items()))


def import_labels(store: LabelStore, images: Path, kind: str, source: Path) -> ExchangeSummary:
    """Save labels that were given elsewhere for pictures that have none yet.

    `source` is a folder of pictures with their labels, for boxes in any of the three formats, for classes with a folder
    per class; it may be the folder of the pictures itself. Its pictures are found among `images` by their path, or by
    their name if only one has it.
    """
    labelled, classes, problems = read_boxes(source) if kind == "boxes" else read_class_folders(source)
    finder = PictureFinder.of_folder(images)
    store.add_classes(kind, classes)
    existing = store.list_labelled()
    saved, lost = [], []
    for labels in labelled:
        name = finder.find(labels.picture)
        if name is None:
            lost.append(Problem(ProblemKind.LABELS_WITHOUT_PICTURE, labels.picture))
        elif name in existing:
            lost.append(Problem(ProblemKind.PICTURE_LABELLED_TWICE, name))
        elif has_other_size(images / name, labels):
            lost.append(Problem(ProblemKind.SIZE_DIFFERS, name))
        else:
            existing.add(name)
            try:
                saved.append(store.save_labels(replace(labels, picture=name), 0))
            except LabelConflict:  # somebody saved the picture on the page in the meantime
                lost.append(Problem(ProblemKind.PICTURE_LABELLED_TWICE, name))
    problems += count_problems(lost)
    return ExchangeSummary(pictures=len(saved), by_class=count_classes(saved), problems=problems)


def has_other_size(path: Path, labels: PictureLabels) -> bool:
    """Return whether a picture has another size than its labels are for, or cannot be read."""
    try:
        return read_upright_size(path) != (labels.width, labels.height)
    except PILLOW_ERRORS:
        return True


def read_boxes(source: Path) -> tuple[list[PictureLabels], Sequence[str], DataProblems]:
    """Read the boxes of a folder, its classes, and what was left out."""
    dataset = read_boxed_folder(source)
    labelled = [
        PictureLabels(picture=x.file_name, width=x.width, height=x.height, boxes=x.boxes, author=IMPORT_AUTHOR)
        for x in dataset.pictures
    ]
    return labelled, dataset.classes, dataset.problems


def read_class_folders(source: Path) -> tuple[list[PictureLabels], Sequence[str], DataProblems]:
    """Read the class of each picture of a folder from the first part of its path, and what was left out."""
    labelled, lost = [], []
    for name in list_pictures(source):
        folder, slash, _ = name.partition("/")
        try:
            width, height = read_upright_size(source / name)
        except PILLOW_ERRORS:
            lost.append(Problem(ProblemKind.FILE_BROKEN, name))
            continue
        if slash:
            labelled.append(PictureLabels(picture=name, width=width, height=height, label=folder, author=IMPORT_AUTHOR))
        else:
            lost.append(Problem(ProblemKind.PICTURE_WITHOUT_LABELS, name))
    classes = dict.fromkeys(str(labels.label) for labels in labelled)
    return labelled, [*classes], count_problems(lost)


@dataclass(frozen=True)
class PictureFinder:
    """Pictures of a folder by their path and by their name."""

    names: frozenset[str]
    by_name: dict[str, list[str]]

    @classmethod
    def of_folder(cls, folder: Path) -> "PictureFinder":
        """Return a finder of the pictures in a folder."""
        names, by_name = list_pictures(folder), dict[str, list[str]]()
        for name in names:
            by_name.setdefault(PurePosixPath(name).name, []).append(name)
        return cls(frozenset(names), by_name)

    def find(self, name: str) -> str | None:
        """Return the picture of this path, or the only one of this name; None if there is none."""
        if name in self.names:
            return name
        same_name = self.by_name.get(PurePosixPath(name).name, [])
        return same_name[0] if len(same_name) == 1 else None
