"""Boxes in Pascal VOC's XML: one file beside each picture, with the corners of each box in pixels.

Corners are distances from the left and the top of the picture, as labelImg, CVAT and Label Studio write them, not the
pixel numbers from 1 of the original data set. A crowd is an object marked as difficult: neither counts in a metric.
"""

from collections.abc import Iterator
from decimal import Context, Decimal, DecimalException
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.boxes.pictures import PictureFolder, list_files, mentions_words, scan_pictures
from equipoise.boxes.problems import ProblemKind, count_problems
from equipoise.storage.atomic import atomic_write

EXACT = Context(prec=2000)
"""sums and differences of decimals without rounding, so that a box that is written and read again is the same"""


def read_voc(root: Path) -> BoxedDataset:
    """Read the labels in Pascal VOC's XML files below a folder."""
    pictures = scan_pictures(root)
    boxed: dict[str, BoxedPicture] = {}
    for file in list_voc_files(root):
        place = file.relative_to(root).as_posix()
        annotation = parse_voc_file(file)
        name = None if annotation is None else find_voc_picture(annotation, place, pictures)
        if annotation is None:
            pictures.report(ProblemKind.FILE_BROKEN, place)
        elif name is None:
            pictures.report(ProblemKind.LABELS_WITHOUT_PICTURE, place)
        elif name in boxed:
            pictures.report(ProblemKind.PICTURE_LABELLED_TWICE, f"{place}: {name}")
        elif name in pictures.sizes and has_same_size(annotation, place, name, pictures):
            boxed[name] = BoxedPicture(
                name, *pictures.sizes[name], tuple(read_voc_boxes(annotation, place, name, pictures))
            )
    pictures.report_unlabelled(boxed)
    classes = sorted({box.label for picture in boxed.values() for box in picture.boxes})
    return BoxedDataset(tuple(classes), tuple(boxed[name] for name in sorted(boxed)), count_problems(pictures.problems))


def list_voc_files(root: Path) -> list[Path]:
    """Return the XML files below a folder that may be annotations of Pascal VOC."""
    return [path for path in list_files(root, ".xml") if mentions_words(path, "<annotation")]


def parse_voc_file(file: Path) -> ElementTree.Element | None:
    """Return the annotation in a file; None if it cannot be read."""
    document = parse_xml(file)
    return document if document is not None and document.tag == "annotation" else None


def parse_xml(file: Path) -> ElementTree.Element | None:
    """Return the root of an XML document; None if it is broken or declares entities, which may grow without end."""
    try:
        text = file.read_text(encoding="utf-8-sig")
        return None if "<!DOCTYPE" in text or "<!ENTITY" in text else ElementTree.fromstring(text)  # noqa: S314 - without entities
    except (OSError, ValueError, ElementTree.ParseError, RecursionError):
        return None


def find_voc_picture(annotation: ElementTree.Element, place: str, pictures: PictureFolder) -> str | None:
    """Return the picture of a file of labels: the one it names, or the one with the same stem beside it."""
    path = PurePosixPath(place)
    if (beside := pictures.find_by_stem(path)) is not None:
        return beside
    name = (annotation.findtext("filename") or "").strip()
    bases = [base / folder for base in (path.parent, path.parent.parent) for folder in ("", "JPEGImages", "images")]
    return pictures.find_picture(name, bases) if name else None


def has_same_size(annotation: ElementTree.Element, place: str, name: str, pictures: PictureFolder) -> bool:
    """Return whether labels are for a picture of this size, or do not say it; report another size."""
    size = [annotation.findtext(f"size/{side}") for side in ("width", "height")]
    stated = [None if text is None else parse_decimal(text) for text in size]
    if any(value not in (None, side, Decimal(0)) for value, side in zip(stated, pictures.sizes[name], strict=True)):
        pictures.report_other_size(name, place)
        return False
    return True


def read_voc_boxes(
    annotation: ElementTree.Element, place: str, picture: str, pictures: PictureFolder
) -> Iterator[LabelledBox]:
    """Read the boxes of one picture; report those that cannot be used."""
    for index, entry in enumerate(annotation.findall("object")):
        where = f"{place}, object {index + 1}"
        label = (entry.findtext("name") or "").strip()
        corners = [parse_decimal(entry.findtext(f"bndbox/{side}") or "") for side in ("xmin", "ymin", "xmax", "ymax")]
        left, top, right, bottom = corners
        if not label:
            pictures.report(ProblemKind.CLASS_UNKNOWN, where)
        elif left is None or top is None or right is None or bottom is None:
            pictures.report(ProblemKind.BOX_BROKEN, where)
        else:
            size = EXACT.subtract(right, left), EXACT.subtract(bottom, top)
            is_crowd = (entry.findtext("difficult") or "0").strip() == "1"
            box = LabelledBox(label, float(left), float(top), float(size[0]), float(size[1]), is_crowd)
            if fitting := pictures.keep_box(box, picture, where):
                yield fitting


def parse_decimal(text: str) -> Decimal | None:
    """Return the finite number in a text, at most as large as a picture may be; None if it is something else."""
    try:
        value = Decimal(text.strip())
    except DecimalException:
        return None
    return value if value.is_finite() and abs(value) < 10**9 and len(text) < 400 else None


def write_voc(dataset: BoxedDataset, folder: Path) -> None:
    """Write a data set as XML files beside its pictures."""
    for picture in dataset.pictures:
        document = build_annotation(picture)
        ElementTree.indent(document)
        with atomic_write(folder / str(PurePosixPath(picture.file_name).with_suffix(".xml"))) as temporary:
            temporary.write_text(ElementTree.tostring(document, encoding="unicode") + "\n", encoding="utf-8")


def build_annotation(picture: BoxedPicture) -> ElementTree.Element:
    """Return the XML document of a picture."""
    document = ElementTree.Element("annotation")
    ElementTree.SubElement(document, "filename").text = PurePosixPath(picture.file_name).name
    size = ElementTree.SubElement(document, "size")
    for name, value in (("width", picture.width), ("height", picture.height), ("depth", 3)):
        ElementTree.SubElement(size, name).text = str(value)
    for box in picture.boxes:
        entry = ElementTree.SubElement(document, "object")
        ElementTree.SubElement(entry, "name").text = box.label
        ElementTree.SubElement(entry, "difficult").text = str(int(box.is_crowd))
        left, top, width, height = (Decimal(repr(float(value))) for value in (box.x, box.y, box.width, box.height))
        corners = {"xmin": left, "ymin": top, "xmax": EXACT.add(left, width), "ymax": EXACT.add(top, height)}
        corner_entry = ElementTree.SubElement(entry, "bndbox")
        for name, corner in corners.items():
            ElementTree.SubElement(corner_entry, name).text = f"{corner.normalize(EXACT):f}"
    return document
