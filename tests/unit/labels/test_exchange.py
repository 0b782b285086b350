"""Labels exported to the formats of other programs and imported again."""

import pytest

from equipoise.boxes.box import LabelledBox
from equipoise.boxes.problems import ProblemKind
from equipoise.labels.exchange import export_labels, import_labels
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.store import LabelStore
from tests.support.errors import raises_code
from tests.support.labelling import write_pictures, write_shelf

BOXES = (LabelledBox("cola", 10.25, 20.5, 30.0, 40.125), LabelledBox("water", 0.0, 0.0, 119.5, 89.99))


def label_boxes(folder, picture, boxes=BOXES):
    store = LabelStore(folder / "labels")
    store.add_classes("boxes", ["water", "cola"])
    store.save_labels(PictureLabels(picture=picture, width=120, height=90, boxes=boxes, author="anna"), 0)
    return store


def label_class(folder, picture, name):
    store = LabelStore(folder / "labels")
    store.add_classes("class", [name])
    store.save_labels(PictureLabels(picture=picture, width=120, height=90, label=name), 0)
    return store


@pytest.mark.parametrize(("format_name", "tolerance"), [("coco", 0.0), ("voc", 0.0), ("yolo", 1e-6)])
def test_exported_boxes_are_imported_again(tmp_path, format_name, tolerance):
    write_pictures(tmp_path / "photos", 3)
    write_shelf(tmp_path / "photos" / "aisle" / "a.png", [])
    for name, boxes in (("000.png", BOXES), ("001.png", ()), ("aisle/a.png", BOXES[:1]), ("gone.png", ())):
        store = label_boxes(tmp_path, name, boxes)
    (tmp_path / "labels" / "broken.png.json").write_text("{")
    out = tmp_path / "dataset"
    summary = export_labels(store, tmp_path / "photos", format_name, out)
    assert summary.pictures == 3 and summary.by_class == {"cola": 2, "water": 1}
    assert summary.problems.counts == {
        ProblemKind.FILE_BROKEN: 1,
        ProblemKind.LABELS_WITHOUT_PICTURE: 1,
        ProblemKind.PICTURE_WITHOUT_LABELS: 1,
    }
    assert "gone.png" in str(summary.problems.describe()) and "002.png" in str(summary.problems.describe())
    assert (out / "aisle" / "a.png").read_bytes() == (tmp_path / "photos" / "aisle" / "a.png").read_bytes()
    other = LabelStore(tmp_path / "imported")
    assert import_labels(other, tmp_path / "photos", "boxes", out).pictures == 3
    for labels in other.read_all()[0]:
        original = store.read_labels(labels.picture).boxes
        assert [box.label for box in labels.boxes] == [box.label for box in original] and labels.author == "imported"
        for box, expected in zip(labels.boxes, original, strict=True):
            for side in ("x", "y", "width", "height"):
                assert getattr(box, side) == pytest.approx(getattr(expected, side), abs=tolerance)


def test_picture_that_was_turned_since_it_was_labelled_gets_no_yolo_labels(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    for name in ("000.png", "001.png"):
        store = label_boxes(tmp_path, name)
    write_shelf(tmp_path / "photos" / "001.png", [], size=(90, 120))
    summary = export_labels(store, tmp_path / "photos", "yolo", tmp_path / "dataset")
    assert summary.pictures == 1 and summary.problems.examples == {ProblemKind.SIZE_DIFFERS: ("001.png",)}


def test_import_leaves_labelled_pictures_as_they_are(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    for name in ("000.png", "001.png"):
        store = label_boxes(tmp_path, name)
    export_labels(store, tmp_path / "photos", "coco", tmp_path / "dataset")
    (tmp_path / "labels" / "001.png.json").unlink()
    write_shelf(tmp_path / "photos" / "001.png", [], size=(60, 45))  # another picture of this name
    summary = import_labels(store, tmp_path / "photos", "boxes", tmp_path / "dataset")
    assert summary.pictures == 0 and store.read_labels("000.png").author == "anna"
    assert summary.problems.counts == {ProblemKind.PICTURE_LABELLED_TWICE: 1, ProblemKind.SIZE_DIFFERS: 1}


class BusyStore(LabelStore):
    """Labels of a folder in which somebody saves a picture just after it was looked through."""

    def list_labelled(self):
        names = super().list_labelled()
        if "000.png" not in names:
            self.save_labels(PictureLabels(picture="000.png", width=120, height=90, boxes=(), author="ben"), 0)
        return names


def test_import_goes_on_where_somebody_labels_a_picture_in_the_meantime(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    for name in ("000.png", "001.png"):
        store = label_boxes(tmp_path, name)
    export_labels(store, tmp_path / "photos", "coco", tmp_path / "dataset")
    busy = BusyStore(tmp_path / "busy")
    summary = import_labels(busy, tmp_path / "photos", "boxes", tmp_path / "dataset")
    assert summary.pictures == 1 and summary.problems.counts == {ProblemKind.PICTURE_LABELLED_TWICE: 1}
    assert busy.read_labels("000.png").author == "ben" and busy.read_labels("001.png").author == "imported"


def test_classes_are_exported_as_folders_and_imported_by_name(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    label_class(tmp_path, "000.png", "cola")
    store = label_class(tmp_path, "001.png", "eau gazeuse")
    summary = export_labels(store, tmp_path / "photos", "folder", tmp_path / "dataset")
    assert summary.by_class == {"cola": 1, "eau gazeuse": 1}
    assert (tmp_path / "dataset" / "eau gazeuse" / "001.png").exists()
    other = LabelStore(tmp_path / "imported")
    assert import_labels(other, tmp_path / "photos", "class", tmp_path / "dataset").pictures == 2
    assert other.read_labels("001.png").label == "eau gazeuse" and other.read_classes()[1] == ["cola", "eau gazeuse"]


def test_exports_that_would_lose_labels_are_refused_and_nothing_is_written(tmp_path):
    write_pictures(tmp_path / "photos", 1)
    write_shelf(tmp_path / "photos" / "000.jpg", [])
    out, photos = tmp_path / "dataset", tmp_path / "photos"
    with raises_code("captures-empty"):
        export_labels(LabelStore(tmp_path / "labels"), photos, "coco", out)
    label_boxes(tmp_path, "000.png")
    store = label_boxes(tmp_path, "000.jpg")
    for format_name, code in (("folder", "option-conflict"), ("yolo", "labels-invalid"), ("voc", "labels-invalid")):
        with raises_code(code):
            export_labels(store, photos, format_name, out)
    assert not out.exists()
    export_labels(store, photos, "coco", out)
    with raises_code("path-exists"):
        export_labels(store, photos, "coco", out)


def test_class_that_cannot_be_a_folder_is_refused(tmp_path):
    write_pictures(tmp_path / "photos", 1)
    store = label_class(tmp_path, "000.png", "../x")
    with raises_code("labels-invalid"):
        export_labels(store, tmp_path / "photos", "folder", tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()


def test_two_pictures_of_one_exported_name_are_refused_and_stay_as_they_are(tmp_path):
    photos = tmp_path / "photos"
    names = ("a/b.png", "a__b.png")
    for number, name in enumerate(names):
        write_shelf(photos / name, [(number, 10, 20, 30, 40)])
        store = label_class(tmp_path, name, "cola")
    before = [(photos / name).read_bytes() for name in names]
    with raises_code("labels-invalid", "cola/a__b.png is the name of two pictures"):
        export_labels(store, photos, "folder", tmp_path / "dataset")
    assert [(photos / name).read_bytes() for name in names] == before


@pytest.mark.parametrize("names", [("classes.png",), ("below/classes.png",), ("images/a.png", "labels/a.png")])
def test_picture_whose_yolo_labels_are_another_file_is_refused(tmp_path, names):
    for name in names:
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        write_shelf(tmp_path / "photos" / name, [])
        store = label_boxes(tmp_path, name)
    with raises_code("labels-invalid", "would be one file", "coco"):
        export_labels(store, tmp_path / "photos", "yolo", tmp_path / "dataset")
    assert export_labels(store, tmp_path / "photos", "voc", tmp_path / "dataset").pictures == len(names)
