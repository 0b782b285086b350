"""Boxes in YOLO's text files: one beside each picture, with a line `class x y width height` for each box.

The class is an index into the names in classes.txt, obj.names or data.yaml; the box is given by its middle and its
size, as fractions of the picture. Lines of a polygon, as for segmentation, are read as the box around it.
"""

import math
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

import yaml

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.boxes.pictures import PictureFolder, list_files, scan_pictures
from equipoise.boxes.problems import DataProblems, Problem, ProblemKind, count_problems
from equipoise.errors import EquipoiseError
from equipoise.images.orientation import list_image_files
from equipoise.storage.atomic import atomic_write

NAME_FILES = ("classes.txt", "obj.names", "_darknet.labels")
YAML_FILES = ("data.yaml", "data.yml", "dataset.yaml")
PICTURE_LISTS = ("train.txt", "val.txt", "valid.txt", "test.txt")
"""names of text files that hold no boxes, unless a picture has that name, too"""


def read_yolo(root: Path) -> BoxedDataset:
    """Read the labels in YOLO's text files below a folder, beside the pictures or in `labels` instead of `images`."""
    classes = read_class_names(root)
    pictures = scan_pictures(root)
    by_labels = {label_path(name): name for name in sorted(pictures.sizes.keys() | pictures.broken)}
    by_labels |= {str(PurePosixPath(name).with_suffix(".txt")): name for name in by_labels.values()}
    boxed: dict[str, BoxedPicture] = {}
    for file in list_yolo_files(root):
        place = file.relative_to(root).as_posix()
        name = by_labels.get(place)
        if name is None:
            pictures.report(ProblemKind.LABELS_WITHOUT_PICTURE, place)
        elif name in boxed:
            pictures.report(ProblemKind.PICTURE_LABELLED_TWICE, f"{place}: {name}")
        elif name in pictures.sizes:
            boxes = read_yolo_file(file, place, name, classes, pictures)
            boxed[name] = BoxedPicture(name, *pictures.sizes[name], boxes)
    pictures.report_unlabelled(boxed)
    names = tuple(dict.fromkeys(filter(None, classes)))  # one class may have two numbers
    return BoxedDataset(names, tuple(boxed[name] for name in sorted(boxed)), count_problems(pictures.problems))


def label_path(picture: str) -> str:
    """Return the file of labels of a picture, with the last folder `images` of its path replaced by `labels`."""
    parts = list(PurePosixPath(picture).with_suffix(".txt").parts)
    if "images" in parts[:-1]:
        parts[len(parts) - 2 - parts[-2::-1].index("images")] = "labels"
    return str(PurePosixPath(*parts))


def list_yolo_files(root: Path) -> list[Path]:
    """Return the text files below a folder that may hold boxes: with the name of a picture, or numbers at the start."""
    stems = {path.stem for path in list_image_files(root)}
    return [path for path in list_files(root, ".txt") if may_hold_boxes(path, stems)]


def may_hold_boxes(path: Path, stems: Collection[str]) -> bool:
    """Return whether a text file may hold boxes, where `stems` are the names of pictures without suffix."""
    if path.name.lower() in NAME_FILES:
        return False
    if path.name.lower() in PICTURE_LISTS:
        return path.stem in stems and (not path.stat().st_size or starts_with_numbers(path))
    return path.stem in stems or starts_with_numbers(path)


def starts_with_numbers(path: Path) -> bool:
    """Return whether the first line of a file are numbers, at least as many as a box has."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        fields = file.readline(10_000).split()
    return len(fields) >= 5 and parse_finite_numbers(fields) is not None


def read_class_names(root: Path) -> list[str]:
    """Return the names of the classes by their index; refuse a folder that does not tell them, or in two ways.

    labelImg writes a classes.txt into each folder, in the order in which classes were first used there: where two files
    begin differently, a number would stand for another class than the one that was chosen.
    """
    lists = {file: names for file in list_class_files(root) if (names := read_class_file(file))}
    if not lists:
        raise EquipoiseError(
            "dataset-invalid",
            f"cannot read the boxes in {root}: text files give classes by number, and nothing in it names them",
            "add classes.txt with one name a line, or data.yaml with names",
        )
    longest = max(lists, key=lambda file: len(lists[file]))
    for file, names in lists.items():
        if names != lists[longest][: len(names)]:
            first, second = (path.relative_to(root).as_posix() for path in (file, longest))
            raise EquipoiseError(
                "dataset-invalid",
                f"cannot read the boxes in {root}: {first} and {second} number the classes differently",
                "import each folder by itself with equipoise label --import-labels, or keep one file if the other is"
                " out of date",
            )
    return lists[longest]


def list_class_files(root: Path) -> list[Path]:
    """Return the files below a folder that may name the classes, without hidden ones."""
    return [file for name in (*NAME_FILES, *YAML_FILES) for file in list_files(root, name) if file.name == name]


def read_class_file(file: Path) -> list[str]:
    """Return the names in a file by their number: by line, empty for an empty one, or as YAML; none if it has none."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:  # with letters replaced, names that differ in them alone would be one class
        raise EquipoiseError(
            "dataset-invalid", f"cannot read the names of classes in {file}: it is not UTF-8", "save it as UTF-8"
        ) from None
    return parse_yaml_names(text) if file.name in YAML_FILES else [line.strip() for line in text.rstrip().splitlines()]


def parse_yaml_names(text: str) -> list[str]:
    """Return the class names in a data.yaml of ultralytics, a list or a mapping from 0 on; none if it has none."""
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return []
    names = content.get("names") if isinstance(content, dict) else None
    if isinstance(names, dict):
        by_number = {str(number): name for number, name in names.items()}
        names = [by_number.get(str(index)) for index in range(len(names))]
        return [] if None in names else [str(name) for name in names]
    return [str(name) for name in names] if isinstance(names, list) else []


def read_yolo_file(
    file: Path, place: str, picture: str, classes: Sequence[str], pictures: PictureFolder
) -> tuple[LabelledBox, ...]:
    """Read the boxes of one picture; report lines that cannot be used."""
    lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    boxes: list[LabelledBox] = []
    for number, line in enumerate(lines, 1):
        where = f"{place}, line {number}"
        if not (fields := line.split()):
            continue
        values = parse_finite_numbers(fields)
        if values is None or not (len(values) == 5 or (len(values) >= 7 and len(values) % 2)) or values[0] % 1:
            pictures.report(ProblemKind.BOX_BROKEN, where)
        elif not 0 <= values[0] < len(classes) or not classes[int(values[0])]:
            pictures.report(ProblemKind.CLASS_UNKNOWN, f"{where}: {fields[0]}")
        else:
            box = parse_yolo_box(classes[int(values[0])], values[1:], *pictures.sizes[picture])
            if fitting := pictures.keep_box(box, picture, where):
                boxes.append(fitting)
    return tuple(boxes)


def parse_finite_numbers(fields: Sequence[str]) -> list[float] | None:
    """Return the finite numbers in the fields of a line; None if one of them is something else."""
    try:
        values = [float(field) for field in fields]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def parse_yolo_box(label: str, values: Sequence[float], width: int, height: int) -> LabelledBox:
    """Return the box of a line: middle and size, or the corners of a polygon, as fractions of the picture."""
    if len(values) == 4:
        x, y, box_width, box_height = values
        left, top = x - box_width / 2, y - box_height / 2
    else:
        left, top = min(values[::2]), min(values[1::2])
        box_width, box_height = max(values[::2]) - left, max(values[1::2]) - top
    return LabelledBox(label, left * width, top * height, box_width * width, box_height * height)


def write_yolo(dataset: BoxedDataset, folder: Path) -> DataProblems:
    """Write a data set as text files beside its pictures, and classes.txt; return what the format cannot hold."""
    numbers = {name: number for number, name in enumerate(dataset.classes)}
    lost: list[Problem] = []
    for picture in dataset.pictures:
        name = str(PurePosixPath(label_path(picture.file_name)))
        crowds = [box for box in picture.boxes if box.is_crowd]
        lost.extend(Problem(ProblemKind.CROWD_LOST, picture.file_name) for _ in crowds)
        lines = [format_yolo_box(box, numbers[box.label], picture) for box in picture.boxes if not box.is_crowd]
        with atomic_write(folder / name) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")
    with atomic_write(folder / "classes.txt") as temporary:
        temporary.write_text("".join(f"{name}\n" for name in dataset.classes), encoding="utf-8")
    return count_problems(lost)


def format_yolo_box(box: LabelledBox, number: int, picture: BoxedPicture) -> str:
    """Return the line of a box."""
    width, height = picture.width, picture.height
    x, y = (box.x + box.width / 2) / width, (box.y + box.height / 2) / height
    return f"{number} {x:.10f} {y:.10f} {box.width / width:.10f} {box.height / height:.10f}\n"
