"""Labels of one picture, as a person or a model gives them and as their file holds them."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from equipoise.boxes.box import LabelledBox
from equipoise.errors import EquipoiseError
from equipoise.storage.json_decoding import decode_json_value
from equipoise.type_aliases import JsonObject

LABEL_KINDS = ("boxes", "class")
LABELS_SCHEMA = 1
MAX_BOXES = 1000  # of one picture
MAX_NAME_CHARACTERS = 100  # characters of a class or a person's name


@dataclass(frozen=True, kw_only=True)
class PictureLabels:
    """Labels of one picture: boxes, or a class; with who gave them and when."""

    picture: str
    """path of the picture in its folder, with slashes"""
    width: int
    """pixels of the picture, turned upright as its EXIF says"""
    height: int
    """pixels of the picture, as the width"""
    boxes: tuple[LabelledBox, ...] | None = None
    """boxes in pixels of the upright picture; None where a picture has a class"""
    label: str | None = None
    """class of the whole picture"""
    author: str = ""
    """name of whoever gave them, as they wrote it; `imported` for labels that were taken over"""
    at: float = field(default_factory=time.time)
    """seconds since 1970"""
    revision: int = 0
    """number of the save: 1 for the first; 0 for what is not saved yet"""
    schema: int = LABELS_SCHEMA
    """version of this format"""

    def __post_init__(self) -> None:
        if (self.boxes is None) == (self.label is None):
            raise EquipoiseError("labels-invalid", f"{self.picture} needs boxes or a class, and not both")
        if self.width < 1 or self.height < 1:
            raise EquipoiseError("labels-invalid", f"{self.picture} has a size of {self.width}x{self.height} pixels")
        if len(self.boxes or ()) > MAX_BOXES:
            raise EquipoiseError("labels-invalid", f"{self.picture} has more than {MAX_BOXES:,} boxes")
        for name in self.class_names():
            require_class_name(name)
        if len(self.author) > MAX_NAME_CHARACTERS or not self.author.isprintable():
            raise EquipoiseError("labels-invalid", f"the author's name {self.author[:40]!r} is too long or unprintable")
        for box in self.boxes or ():
            require_box_inside(box, self)

    @property
    def kind(self) -> str:
        """Kind of these labels: boxes or class."""
        return "class" if self.boxes is None else "boxes"

    def class_names(self) -> list[str]:
        """Return the classes that occur, each once."""
        return [self.label] if self.label is not None else list(dict.fromkeys(box.label for box in self.boxes or ()))

    @classmethod
    def from_json(cls, contents: object, source: str) -> Self:
        """Parse the content of a label file; refuse anything else, with the file in the message."""
        labels = decode_json_value(contents, cls, code="labels-invalid", problem=f"cannot read {source}")
        if labels.schema != LABELS_SCHEMA:
            raise EquipoiseError("labels-invalid", f"cannot read {source}: its schema {labels.schema} is not known")
        return labels

    def to_json(self) -> JsonObject:
        """Return the content of the label file."""
        given = {"boxes": boxes_to_json(self.boxes)} if self.boxes is not None else {"label": self.label}
        size = {"picture": self.picture, "width": self.width, "height": self.height}
        return {"schema": self.schema, **size, **given, **self.provenance()}

    def provenance(self) -> JsonObject:
        """Return who gave the labels, when, and how often they were saved."""
        return {"author": self.author, "at": self.at, "revision": self.revision}

    def after(self, revision: int) -> Self:
        """Return these labels as the save that follows `revision`."""
        return replace(self, revision=revision + 1)


def boxes_to_json(boxes: Sequence[LabelledBox]) -> list[JsonObject]:
    """Return boxes as JSON objects, as `/predict` answers them."""
    return [
        {"label": box.label, "x": box.x, "y": box.y, "width": box.width, "height": box.height}
        | ({"is_crowd": True} if box.is_crowd else {})
        for box in boxes
    ]


def require_class_name(name: str) -> None:
    """Refuse a class name that is empty, too long or cannot be shown."""
    if not name.strip() or name != name.strip() or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise EquipoiseError(
            "class-unknown",
            f"{name[:40]!r} cannot be a class",
            f"give a name of 1 to {MAX_NAME_CHARACTERS} characters without spaces around it",
        )


def require_box_inside(box: LabelledBox, labels: PictureLabels) -> None:
    """Refuse a box without an area or with a part outside of its picture; a thousandth of a pixel is forgiven."""
    right, bottom = box.x + box.width, box.y + box.height
    is_finite = all(map(math.isfinite, (box.x, box.y, right, bottom)))
    is_inside = box.x >= -1e-3 and box.y >= -1e-3 and right <= labels.width + 1e-3 and bottom <= labels.height + 1e-3
    if not (is_finite and is_inside and box.width > 0 and box.height > 0):
        raise EquipoiseError(
            "labels-invalid",
            f"the box {box.label!r} at {box.x:g}, {box.y:g} of {box.width:g}x{box.height:g} pixels is empty or reaches"
            f" out of {labels.picture} of {labels.width}x{labels.height}",
        )


def clip_box(box: LabelledBox, width: float, height: float) -> LabelledBox | None:
    """Return the part of a box inside a picture, or None if there is none."""
    left, top = max(box.x, 0.0), max(box.y, 0.0)
    right, bottom = min(box.x + box.width, float(width)), min(box.y + box.height, float(height))
    if not (right > left and bottom > top):
        return None
    return replace(box, x=left, y=top, width=right - left, height=bottom - top)


def parse_boxes(contents: Sequence[Mapping[str, Any]], source: str) -> tuple[LabelledBox, ...]:
    """Parse boxes from JSON objects with label, x, y, width and height; other keys are ignored."""
    return decode_json_value(
        contents, tuple[LabelledBox, ...], code="labels-invalid", problem=f"cannot read the boxes of {source}"
    )
