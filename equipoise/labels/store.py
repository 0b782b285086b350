"""Folder of labels: one JSON file per picture, written whole or not at all, by any number of processes at once."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from equipoise.errors import EquipoiseError
from equipoise.labels.picture_labels import LABEL_KINDS, PictureLabels, require_class_name
from equipoise.storage.atomic import read_json, write_json
from equipoise.storage.file_lock import hold_file_lock
from equipoise.storage.json_decoding import decode_json_value
from equipoise.storage.path_errors import report_path_errors

CLASSES_FILE = "classes.json"  # no picture has this name, so no label file does
LOCK_FILE = ".lock"
LABEL_SUFFIX = ".json"  # behind the whole name of the picture: a.jpg and a.png are two pictures
MAX_PICTURE_NAME_LENGTH = 1000  # characters of a path below the folder
MAX_FILE_NAME_BYTES = 255  # of most file systems


class LabelConflict(EquipoiseError):  # noqa: N818 # an outcome rather than a mistake
    """Refusal of a save that does not know the last one, which it would overwrite.

    Attributes:
        current: labels as they are stored
    """

    def __init__(self, current: PictureLabels) -> None:
        author = current.author or "somebody"
        super().__init__(
            "label-conflict",
            f"{current.picture} was labelled by {author} in the meantime",
            "look at it again, then save",
        )
        self.current = current


class LabelStore:
    """Labels of a folder of pictures."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def label_path(self, picture: str) -> Path:
        """Return the label file of a picture; refuse a name that leads out of the folder, or that no file can have."""
        parts = PurePosixPath(picture).parts
        is_too_long = len(picture) > MAX_PICTURE_NAME_LENGTH or any(
            len(f"{part}{LABEL_SUFFIX}".encode("utf-8", "surrogatepass")) > MAX_FILE_NAME_BYTES for part in parts
        )
        if not parts or is_too_long or any(part.startswith(".") or "/" in part or "\0" in part for part in parts):
            raise EquipoiseError("path-kind", f"{picture[:80]!r} cannot be the name of a picture")
        return self.folder.joinpath(*parts[:-1], parts[-1] + LABEL_SUFFIX)

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes and threads from changing labels until the end of the block."""
        return hold_file_lock(self.folder / LOCK_FILE)

    def read_labels(self, picture: str) -> PictureLabels | None:
        """Read the labels of a picture; None if it has none."""
        path = self.label_path(picture)
        try:
            return PictureLabels.from_json(read_json(path), str(path))
        except FileNotFoundError:
            return None

    def save_labels(self, labels: PictureLabels, base_revision: int) -> PictureLabels:
        """Save the labels of a picture and return them with their revision.

        `base_revision` is the revision that they are a change of, 0 for a picture without labels. If another save came
        in between, nothing is written and `LabelConflict` is raised.
        """
        path = self.label_path(labels.picture)
        with report_path_errors(f"cannot write {path}"), self.lock():
            stored = self.read_labels(labels.picture)
            if (stored.revision if stored else 0) != base_revision:
                if stored is None:
                    raise EquipoiseError(
                        "label-conflict", f"the labels of {labels.picture} were removed in the meantime", "save again"
                    )
                raise LabelConflict(stored)
            saved = labels.after(base_revision)
            write_json(path, saved.to_json())
        return saved

    def list_labelled(self) -> set[str]:
        """Return the names of all pictures that have labels, without reading these."""
        return {
            name.removesuffix(LABEL_SUFFIX) for name in list_files(self.folder, (LABEL_SUFFIX,)) if name != CLASSES_FILE
        }

    def read_all(self) -> tuple[list[PictureLabels], list[str]]:
        """Return the labels of all pictures by name, and a sentence on each file that cannot be read."""
        labels, problems = [], []
        for picture in sorted(self.list_labelled()):
            try:
                stored = self.read_labels(picture)
            except EquipoiseError as error:
                problems.append(str(error))
            else:
                labels += [stored] if stored else []
        return labels, problems

    def read_classes(self) -> tuple[str | None, list[str]]:
        """Return the kind of the labels, None for a new folder, and the classes in the order of their keys."""
        path = self.folder / CLASSES_FILE
        try:
            contents = read_json(path)
        except FileNotFoundError:
            return None, []
        problem = f"cannot read {path}"
        kind = contents.get("kind") if isinstance(contents, dict) else None
        if kind not in LABEL_KINDS:
            raise EquipoiseError("labels-invalid", f"{problem}: its kind must be one of {', '.join(LABEL_KINDS)}")
        classes = decode_json_value(contents.get("classes"), list[str], code="labels-invalid", problem=problem)
        return kind, classes

    def add_classes(self, kind: str, names: Sequence[str]) -> list[str]:
        """Add classes behind those that there are, and return all; refuse a folder of labels of another kind."""
        for name in names:
            require_class_name(name)
        with report_path_errors(f"cannot write to {self.folder}"), self.lock():
            stored_kind, stored = self.read_classes()
            if stored_kind not in (None, kind):
                raise EquipoiseError(
                    "option-conflict",
                    f"cannot label {kind} in {self.folder}: it holds labels of kind {stored_kind}",
                    "choose another folder for these labels",
                )
            classes = list(dict.fromkeys([*stored, *names]))
            if stored_kind is None or classes != stored:
                write_json(self.folder / CLASSES_FILE, {"schema": 1, "kind": kind, "classes": classes})
        return classes


def list_files(folder: Path, suffixes: Sequence[str]) -> list[str]:
    """Return the paths below a folder, with slashes, of the files with these suffixes; hidden ones are left out."""
    names = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        prefix = "" if parent == str(folder) else Path(parent).relative_to(folder).as_posix() + "/"
        names += [
            prefix + name for name in files if not name.startswith(".") and name.lower().endswith(tuple(suffixes))
        ]
    return sorted(names)
