"""Boxes in COCO's JSON: one file with all pictures, classes and annotations.

A box is [x, y, width, height] in pixels, https://cocodataset.org/#format-data.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.boxes.pictures import PictureFolder, list_files, mentions_words, scan_pictures
from equipoise.boxes.problems import ProblemKind, count_problems
from equipoise.storage.atomic import atomic_write

COCO_KEYS = ("images", "annotations", "categories")
MAX_NUMBER = 1e300  # JSON has whole numbers of any length
PICTURE_FOLDERS = ("", "images")  # beside the file, and below the folder of the data set


def read_coco(root: Path) -> BoxedDataset:
    """Read the labels in all files of COCO's JSON below a folder, whose pictures lie anywhere in it."""
    pictures = scan_pictures(root)
    classes: dict[str, None] = {}
    boxes: dict[str, list[LabelledBox]] = {}
    for file in list_coco_files(root):
        read_coco_file(file, pictures, classes, boxes)
    pictures.report_unlabelled(boxes)
    return BoxedDataset(
        tuple(classes),
        tuple(BoxedPicture(name, *pictures.sizes[name], tuple(boxes[name])) for name in sorted(boxes)),
        count_problems(pictures.problems),
    )


def list_coco_files(root: Path) -> list[Path]:
    """Return the JSON files below a folder that may be COCO's, known by their keys, without reading them whole."""
    return [path for path in list_files(root, ".json") if mentions_words(path, *(f'"{key}"' for key in COCO_KEYS))]


def is_coco(content: object) -> bool:
    """Return whether the content of a JSON file is that of COCO's annotations."""
    return isinstance(content, dict) and all(isinstance(content.get(key), list) for key in COCO_KEYS)


def try_read_json(path: Path) -> Any:
    """Return the content of a JSON file; None if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


def read_coco_file(
    file: Path, pictures: PictureFolder, classes: dict[str, None], boxes: dict[str, list[LabelledBox]]
) -> None:
    """Add the classes and the boxes of one file, by picture."""
    content, place = try_read_json(file), file.relative_to(pictures.root).as_posix()
    if not is_coco(content):
        pictures.report(ProblemKind.FILE_BROKEN, place)
        return
    given = read_coco_entries(content["categories"], "name", f"{place}, categories", pictures)
    names = {identifier: (name or "").strip() or None for identifier, name in given.items()}
    classes.update(dict.fromkeys(name for name in names.values() if name is not None))
    bases = [base / folder for base in (PurePosixPath(place).parent, PurePosixPath()) for folder in PICTURE_FOLDERS]
    files = read_coco_entries(content["images"], "file_name", f"{place}, images", pictures)
    leave_out_ambiguous(content["images"], files, pictures, bases)
    entries: dict[Any, Any] = {}
    for index, entry in enumerate(content["images"]):
        if is_named_entry(entry, "file_name"):
            entries.setdefault(entry["id"], entry)
        else:
            pictures.report(ProblemKind.BOX_BROKEN, f"{place}, images[{index}]")
    by_id: dict[Any, str | None] = {}
    for identifier, file_name in files.items():
        is_clear = file_name is not None
        by_id[identifier] = name = find_coco_picture(entries[identifier], pictures, bases, place) if is_clear else None
        if name is not None and name in boxes:
            pictures.report(ProblemKind.PICTURE_LABELLED_TWICE, f"{place}: {name}")
            by_id[identifier] = None
        elif name is not None:
            boxes[name] = []
    for index, entry in enumerate(content["annotations"]):
        add_coco_box(entry, f"{place}, annotations[{index}]", pictures, names, by_id, boxes)


def read_coco_entries(
    entries: Sequence[Any], name_key: str, place: str, pictures: PictureFolder
) -> dict[Any, str | None]:
    """Return the names of classes or pictures by their id, None for an id that several of them share; report these.

    Files that were merged carelessly have such ids: whose box an annotation is, or which thing is in it, is unknown.
    """
    names: dict[Any, str | None] = {}
    for index, entry in enumerate(entries):
        if is_named_entry(entry, name_key) and names.setdefault(entry["id"], entry[name_key]) != entry[name_key]:
            pictures.report(ProblemKind.ID_SHARED, f"{place}[{index}]")
            names[entry["id"]] = None
    return names


def leave_out_ambiguous(
    entries: Sequence[Any], files: Mapping[Any, str | None], pictures: PictureFolder, bases: Sequence[PurePosixPath]
) -> None:
    """Leave out the pictures that share an id; without it they would be reported as pictures without labels, too."""
    shared = (entry for entry in entries if is_named_entry(entry, "file_name") and files[entry["id"]] is None)
    pictures.left_out |= {name for entry in shared if (name := pictures.find_picture(entry["file_name"], bases))}


def is_named_entry(entry: object, key: str) -> bool:
    """Return whether an entry has an identifier and a name."""
    return isinstance(entry, dict) and isinstance(entry.get("id"), int | str) and isinstance(entry.get(key), str)


def find_coco_picture(
    entry: Mapping[str, Any], pictures: PictureFolder, bases: Sequence[PurePosixPath], place: str
) -> str | None:
    """Return the picture of an entry of a COCO file; report one that is missing, or of another size."""
    name = pictures.find_picture(entry["file_name"], bases)
    if name is None:
        pictures.report(ProblemKind.LABELS_WITHOUT_PICTURE, f"{place}: {entry['file_name']}")
    elif name in pictures.broken:
        return None
    elif any(
        entry.get(side) not in (None, 0, size)  # some programs write 0 or null for a size that they do not know
        for side, size in zip(("width", "height"), pictures.sizes[name], strict=True)
    ):
        pictures.report_other_size(name, place)
        return None
    return name


def add_coco_box(
    entry: object,
    place: str,
    pictures: PictureFolder,
    names: Mapping[Any, str | None],
    by_id: Mapping[Any, str | None],
    boxes: dict[str, list[LabelledBox]],
) -> None:
    """Add the box of one annotation to its picture; report it if it cannot be used."""
    fields = entry if isinstance(entry, dict) else {}
    corners, keys = fields.get("bbox"), [fields.get(key) for key in ("image_id", "category_id")]
    if not is_number_list(corners, 4) or not all(isinstance(key, int | str) for key in keys):
        pictures.report(ProblemKind.BOX_BROKEN, place)
    elif keys[0] not in by_id:
        pictures.report(ProblemKind.LABELS_WITHOUT_PICTURE, place)
    elif (label := names.get(keys[1])) is None:
        pictures.report(ProblemKind.CLASS_UNKNOWN, f"{place}: {keys[1]!r}")
    elif (name := by_id[keys[0]]) is not None:
        x, y, width, height = (float(value) for value in fields["bbox"])
        box = LabelledBox(label, x, y, width, height, is_crowd=bool(fields.get("iscrowd", 0)))
        if fitting := pictures.keep_box(box, name, place):
            boxes[name].append(fitting)


def is_number_list(value: Any, length: int) -> bool:
    """Return whether a value is a list of this many numbers, each of which fits into a float."""
    if not isinstance(value, list) or len(value) != length:
        return False
    is_number = (isinstance(item, int | float) and not isinstance(item, bool) for item in value)
    return all(is_number) and all(abs(item) < MAX_NUMBER for item in value)


def write_coco(dataset: BoxedDataset, file: Path) -> None:
    """Write a data set as a file of COCO's JSON, which lies in the folder that file names are relative to."""
    numbers = {name: number for number, name in enumerate(dataset.classes, 1)}
    with atomic_write(file) as temporary:
        temporary.write_text(
            json.dumps(
                {
                    "images": [
                        {"id": number, "file_name": picture.file_name, "width": picture.width, "height": picture.height}
                        for number, picture in enumerate(dataset.pictures, 1)
                    ],
                    "categories": [{"id": number, "name": name} for name, number in numbers.items()],
                    "annotations": list_annotations(dataset, numbers),
                },
                indent=1,
                ensure_ascii=False,
            ),
            encoding="utf-8",
        )


def list_annotations(dataset: BoxedDataset, numbers: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the boxes of a data set as COCO's annotations."""
    boxes = [(number, box) for number, picture in enumerate(dataset.pictures, 1) for box in picture.boxes]
    return [
        {
            "id": index,
            "image_id": picture,
            "category_id": numbers[box.label],
            "bbox": [box.x, box.y, box.width, box.height],
            "area": box.width * box.height,
            "iscrowd": int(box.is_crowd),
        }
        for index, (picture, box) in enumerate(boxes, 1)
    ]
