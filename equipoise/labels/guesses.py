"""First guesses of a model for pictures that nobody has labelled yet, from a file."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from equipoise.boxes.box import LabelledBox
from equipoise.errors import EquipoiseError
from equipoise.labels.picture_labels import boxes_to_json, clip_box, parse_boxes
from equipoise.storage.atomic import read_json
from equipoise.type_aliases import JsonObject


@dataclass(frozen=True, kw_only=True)
class Guess:
    """What a model sees in a picture: boxes, or a class; with its scores."""

    boxes: tuple[LabelledBox, ...] | None = None
    scores: tuple[float, ...] = ()
    """score of each box, or the one of the class; from 0 to 1"""
    label: str | None = None

    @property
    def confidence(self) -> float:
        """Score of what the model is least sure of; 0 where it sees nothing."""
        return min(self.scores, default=0.0)

    def class_names(self) -> list[str]:
        """Return the classes that occur, each once."""
        return [self.label] if self.label is not None else list(dict.fromkeys(box.label for box in self.boxes or ()))

    def clip_to(self, width: int, height: int) -> "Guess":
        """Return the guess with its boxes cut at the border of the picture; those outside are left out."""
        pairs = zip(self.boxes or (), self.scores, strict=False)
        kept = [(part, score) for box, score in pairs if (part := clip_box(box, width, height))]
        return self if self.boxes is None else Guess(boxes=tuple(b for b, _ in kept), scores=tuple(s for _, s in kept))

    def keep_classes(self, classes: Collection[str]) -> "Guess | None":
        """Return the guess without boxes of other classes; None for another class of the whole picture."""
        if self.boxes is None:
            return self if self.label in classes else None
        kept = [(box, score) for box, score in zip(self.boxes, self.scores, strict=True) if box.label in classes]
        return Guess(boxes=tuple(box for box, _ in kept), scores=tuple(score for _, score in kept))

    def to_json(self) -> JsonObject:
        """Return the guess as a page gets it."""
        if self.boxes is None:
            return {"label": self.label, "score": self.confidence}
        boxes = boxes_to_json(self.boxes)
        return {"boxes": [box | {"score": score} for box, score in zip(boxes, self.scores, strict=True)]}


def parse_guess(contents: Any, source: str) -> Guess:
    """Parse a reply of `/predict`: {"boxes": [...]} with a score in each, or {"label": ..., "score": ...}."""
    if isinstance(contents, Mapping) and isinstance(contents.get("boxes"), list):
        boxes = parse_boxes(contents["boxes"], source)
        return Guess(boxes=boxes, scores=tuple(parse_score(box, source) for box in contents["boxes"]))
    if isinstance(contents, Mapping) and isinstance(contents.get("label"), str):
        return Guess(label=contents["label"], scores=(parse_score(contents, source),))
    raise EquipoiseError("labels-invalid", f"cannot read {source}: it has neither boxes nor a label")


def parse_score(contents: Mapping[str, Any], source: str) -> float:
    """Return the score of a box or a class; one that has none counts as certain."""
    scores = contents.get("scores")
    usual = scores.get(contents.get("label"), 1.0) if isinstance(scores, Mapping) else 1.0
    score = contents.get("score", usual)
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise EquipoiseError("labels-invalid", f"cannot read {source}: a score must be from 0 to 1, got {score!r:.40}")
    return float(score)


def read_guesses(path: Path) -> dict[str, Guess]:
    """Read guesses by picture from a file: COCO's JSON with scores, or an object of `/predict` replies by name."""
    contents = read_json(path)
    if not isinstance(contents, dict):
        raise EquipoiseError(
            "labels-invalid", f"cannot read --guesses {path}: it must be COCO's JSON or replies of /predict by picture"
        )
    if "annotations" in contents and "images" in contents:
        contents = group_coco_annotations(contents, path)
    return {name: parse_guess(guess, f"the guess for {name[:80]} in {path}") for name, guess in contents.items()}


def group_coco_annotations(contents: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the annotations of COCO's JSON as a reply of `/predict` for each picture."""
    try:
        classes = {category["id"]: category["name"] for category in contents["categories"]}
        names = {image["id"]: str(image["file_name"]) for image in contents["images"]}
        replies: dict[str, Any] = {name: {"boxes": []} for name in names.values()}
        for annotation in contents["annotations"]:
            x, y, width, height = annotation["bbox"]
            box = {"label": classes[annotation["category_id"]], "score": annotation.get("score", 1.0)}
            box |= {"x": x, "y": y, "width": width, "height": height}
            replies[names[annotation["image_id"]]]["boxes"].append(box)
    except (KeyError, TypeError, ValueError) as error:
        reason = f"it is not COCO's JSON ({type(error).__name__}: {error})"
        raise EquipoiseError("labels-invalid", f"cannot read --guesses {path}: {reason}") from None
    return replies
