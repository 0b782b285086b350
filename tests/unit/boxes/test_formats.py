"""COCO, YOLO and VOC: what is written is read again, and what cannot be used is named, counted and left out."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.boxes.folder import read_boxed_folder
from equipoise.boxes.formats.coco import read_coco, write_coco
from equipoise.boxes.formats.voc import read_voc, write_voc
from equipoise.boxes.formats.yolo import read_yolo, write_yolo
from equipoise.boxes.problems import ProblemKind
from equipoise.images.orientation import EXIF_ORIENTATION_TAG, apply_exif_orientation
from tests.support.errors import raises_code

WIDTH, HEIGHT = 60, 40
CLASSES = ("apple juice", "<cola & more>", "日")


def save_picture(folder, name, size=(WIDTH, HEIGHT), orientation=None):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    if orientation:
        exif[EXIF_ORIENTATION_TAG] = orientation
    Image.new("RGB", size).save(path, exif=exif)


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "below/b.jpg", "empty.webp"):
        save_picture(tmp_path, name)
    return tmp_path


@st.composite
def boxes(draw):
    x, y = draw(st.floats(0, WIDTH - 2)), draw(st.floats(0, HEIGHT - 2))
    width, height = draw(st.floats(0.5, WIDTH - 1 - x)), draw(st.floats(0.5, HEIGHT - 1 - y))
    return LabelledBox(draw(st.sampled_from(CLASSES)), x, y, width, height, draw(st.booleans()))


def build_dataset(first, second):
    pictures = [("a.png", first), ("below/b.jpg", second), ("empty.webp", ())]
    return BoxedDataset(CLASSES, tuple(BoxedPicture(name, WIDTH, HEIGHT, tuple(boxes)) for name, boxes in pictures))


DATASET = build_dataset(
    [LabelledBox(CLASSES[0], 0, 0, WIDTH, HEIGHT), LabelledBox(CLASSES[1], 0.1, 0.2, 0.3, 0.7, True)],
    [LabelledBox(CLASSES[2], 10 / 3, 20 / 3, 1 / 7, 8)],
)


@settings(max_examples=25, deadline=None)
@given(first=st.lists(boxes(), max_size=4), second=st.lists(boxes(), max_size=2))
def test_round_trips_are_exact_and_within_half_a_pixel_for_yolo(tmp_path_factory, first, second):
    dataset = build_dataset(first, second)
    for format_name, write, read in (("coco", write_coco, read_coco), ("voc", write_voc, read_voc)):
        root = tmp_path_factory.mktemp(format_name)
        for picture in dataset.pictures:
            save_picture(root, picture.file_name)
        write(dataset, root / "labels.json" if format_name == "coco" else root)
        again = read(root)
        assert again.pictures == dataset.pictures
        assert not again.problems.total
    root = tmp_path_factory.mktemp("yolo")
    for picture in dataset.pictures:
        save_picture(root, picture.file_name)
    lost = write_yolo(dataset, root)
    assert lost.total == sum(box.is_crowd for box in (*first, *second))
    again = read_yolo(root)
    assert again.classes == CLASSES
    for before, after in zip(dataset.pictures, again.pictures, strict=True):
        for box, read_box in zip([box for box in before.boxes if not box.is_crowd], after.boxes, strict=True):
            assert read_box.label == box.label
            for side in ("x", "y", "width", "height"):
                assert abs(getattr(read_box, side) - getattr(box, side)) < 1e-6


def test_each_format_is_recognised_in_a_folder(folder):
    with raises_code("dataset-invalid", "no file of labels"):
        read_boxed_folder(folder)
    write_voc(DATASET, folder)
    assert read_boxed_folder(folder).pictures == DATASET.pictures
    write_coco(DATASET, folder / "labels.json")
    with raises_code("dataset-invalid", "1 file of COCO", "3 files of Pascal VOC"):
        read_boxed_folder(folder)
    for file in folder.rglob("*.xml"):
        file.unlink()
    assert read_boxed_folder(folder) == DATASET
    (folder / "labels.json").unlink()
    write_yolo(DATASET, folder)
    assert read_boxed_folder(folder).classes == CLASSES
    with raises_code("path-kind"):
        read_boxed_folder(folder / "none")


def test_numbers_in_coco_start_at_one(folder):
    write_coco(DATASET, folder / "labels.json")
    content = json.loads((folder / "labels.json").read_text())
    for part in ("images", "categories", "annotations"):  # readers of COCO take class 0 for the background
        assert [entry["id"] for entry in content[part]] == [*range(1, len(content[part]) + 1)]


def edit_coco(folder, edit):
    write_coco(DATASET, folder / "labels.json")
    content = json.loads((folder / "labels.json").read_text())
    edit(content)
    (folder / "labels.json").write_text(json.dumps(content))
    return read_coco(folder)


@pytest.mark.parametrize(
    ("bbox", "kind"),
    [
        ([50, 0, 20, 5], ProblemKind.BOX_OUTSIDE),
        ([-0.6, 0, 20, 5], ProblemKind.BOX_OUTSIDE),
        ([70, 0, 5, 5], ProblemKind.BOX_OUTSIDE),
        ([1, 1, 0, 5], ProblemKind.BOX_EMPTY),
        ([1, 1, 5, -2], ProblemKind.BOX_EMPTY),
        ([-0.4, 1, 0.3, 2], ProblemKind.BOX_EMPTY),
        ([1, 1, 5], ProblemKind.BOX_BROKEN),
        ([1, 1, 5, "4"], ProblemKind.BOX_BROKEN),
        ([1, 1, 5, float("nan")], ProblemKind.BOX_BROKEN),
        ([1, 1, 5, 10**400], ProblemKind.BOX_BROKEN),
        (None, ProblemKind.BOX_BROKEN),
    ],
)
def test_box_that_cannot_be_used_is_left_out_and_named(folder, bbox, kind):
    dataset = edit_coco(folder, lambda content: content["annotations"][0].update(bbox=bbox))
    assert dataset.problems.counts == {kind: 1}
    assert dataset.problems.examples[kind] == ("labels.json, annotations[0]",)
    assert dataset.pictures[0].boxes == DATASET.pictures[0].boxes[1:]


def test_box_is_cut_where_rounding_made_it_stick_out(folder):
    dataset = edit_coco(folder, lambda content: content["annotations"][0].update(bbox=[-0.25, 0, 60.5, 40.25]))
    assert dataset.pictures[0].boxes[0] == DATASET.pictures[0].boxes[0]
    assert not dataset.problems.total


def test_coco_entries_that_fit_nothing_are_named_and_counted(folder):
    def edit(content):
        content["annotations"][0]["category_id"] = 77
        content["annotations"][1]["image_id"] = 88
        content["annotations"].append("nonsense")
        content["images"].append({"id": 99, "file_name": "gone.png", "width": 5, "height": 5})
        content["images"].append({"id": 100, "file_name": "a.png"})
        content["images"].append({"id": [], "file_name": "a.png"})

    save_picture(folder, "unlabelled.png")
    (folder / "broken.png").write_bytes(b"\x89PNG nothing")
    (folder / "broken.json").write_text('{"images": [], "categories": [], "annotations": [')
    (folder / "other.json").write_text('{"images": 1}')
    problems = edit_coco(folder, edit).problems
    assert problems.counts == {
        ProblemKind.CLASS_UNKNOWN: 1,
        ProblemKind.LABELS_WITHOUT_PICTURE: 2,
        ProblemKind.BOX_BROKEN: 2,
        ProblemKind.PICTURE_LABELLED_TWICE: 1,
        ProblemKind.FILE_BROKEN: 2,
        ProblemKind.PICTURE_WITHOUT_LABELS: 1,
    }
    assert problems.examples[ProblemKind.LABELS_WITHOUT_PICTURE] == (
        "labels.json: gone.png",
        "labels.json, annotations[1]",
    )
    assert "1 x picture without labels: unlabelled.png" in problems.describe()


def test_coco_pictures_that_share_an_id_get_no_boxes_of_each_other(folder):
    dataset = edit_coco(folder, lambda content: content["images"][1].update(id=content["images"][0]["id"]))
    assert dataset.pictures == DATASET.pictures[2:]
    assert dataset.problems.counts == {ProblemKind.ID_SHARED: 1, ProblemKind.LABELS_WITHOUT_PICTURE: 1}
    assert dataset.problems.examples[ProblemKind.ID_SHARED] == ("labels.json, images[1]",)


def test_coco_entries_that_are_there_twice_alike_change_nothing(folder):
    def edit(content):
        for key in ("images", "categories"):
            content[key] += content[key]

    assert edit_coco(folder, edit) == DATASET


def test_coco_classes_that_share_an_id_are_unknown(folder):
    dataset = edit_coco(folder, lambda content: content["categories"][1].update(id=content["categories"][0]["id"]))
    assert dataset.classes == CLASSES[2:]
    assert dataset.problems.counts == {ProblemKind.ID_SHARED: 1, ProblemKind.CLASS_UNKNOWN: 2}
    assert [len(picture.boxes) for picture in dataset.pictures] == [0, 1, 0]


def test_coco_classes_have_no_spaces_around_them_and_none_is_empty(folder):
    def edit(content):
        content["categories"][0]["name"] = f" {CLASSES[0]}\n"
        content["categories"].append({"id": 9, "name": " "})

    assert edit_coco(folder, edit) == DATASET


@pytest.mark.parametrize("size", [None, 0])
def test_coco_size_that_its_program_does_not_know_fits_any_picture(folder, size):
    dataset = edit_coco(folder, lambda content: content["images"][0].update(width=size, height=size))
    assert dataset == DATASET


def test_yolo_lines_that_cannot_be_used_are_named(folder):
    write_yolo(DATASET, folder)
    (folder / "a.txt").write_text(
        "0 .5 .5 .2 .2\n3 .5 .5 .2 .2\n-1 .5 .5 .1 .1\n0 .5 .5 .2\n0 .9 .5 .4 .2\n0 .5 .5 0 .2\nx . . . .\n\n"
        "1 .1 .1 .3 .1 .2 .5\n"
    )
    (folder / "gone.txt").write_text("0 .5 .5 .1 .1")
    (folder / "readme.txt").write_text("five words that tell nothing")
    (folder / "below" / "b.txt").unlink()
    dataset = read_yolo(folder)
    assert dataset.problems.counts == {
        ProblemKind.CLASS_UNKNOWN: 2,
        ProblemKind.BOX_BROKEN: 2,
        ProblemKind.BOX_OUTSIDE: 1,
        ProblemKind.BOX_EMPTY: 1,
        ProblemKind.LABELS_WITHOUT_PICTURE: 1,
        ProblemKind.PICTURE_WITHOUT_LABELS: 1,
    }
    assert dataset.problems.examples[ProblemKind.BOX_OUTSIDE] == ("a.txt, line 5",)
    first, polygon = dataset.pictures[0].boxes
    assert (first.x, first.y, first.width, first.height) == pytest.approx((24, 16, 12, 8))
    assert (polygon.x, polygon.y, polygon.width, polygon.height) == pytest.approx((6, 4, 12, 16))


def test_yolo_folders_of_ultralytics_are_read(tmp_path):
    save_picture(tmp_path, "images/train/1.jpg")
    (tmp_path / "labels" / "train").mkdir(parents=True)
    (tmp_path / "labels" / "train" / "1.txt").write_text("1 0.5 0.5 1 1")
    with raises_code("dataset-invalid", "classes.txt"):
        read_yolo(tmp_path)
    (tmp_path / "data.yaml").write_text("path: .\nnames:\n  0: a\n  1: b\n")
    assert read_yolo(tmp_path).pictures[0].boxes == (LabelledBox("b", 0, 0, WIDTH, HEIGHT),)


def test_voc_files_that_cannot_be_used_are_named(folder):
    write_voc(DATASET, folder)
    text = (folder / "a.xml").read_text()
    (folder / "a.xml").write_text(text.replace("<width>60", "<width>61"))
    (folder / "gone.xml").write_text("<annotation><filename>gone.png</filename></annotation>")
    (folder / "broken.xml").write_text("<annotation>")
    (folder / "bomb.xml").write_text('<!DOCTYPE x [<!ENTITY a "a">]><annotation>&a;</annotation>')
    (folder / "other.xml").write_text("<html/>")
    dataset = read_voc(folder)
    assert dataset.pictures == DATASET.pictures[1:]
    assert dataset.problems.counts == {
        ProblemKind.SIZE_DIFFERS: 1,
        ProblemKind.FILE_BROKEN: 2,
        ProblemKind.LABELS_WITHOUT_PICTURE: 1,
    }


def test_labels_never_lead_out_of_the_folder(tmp_path):
    save_picture(tmp_path, "secret.png")
    (tmp_path / "data").mkdir()
    write_coco(BoxedDataset((), (BoxedPicture("../secret.png", WIDTH, HEIGHT),)), tmp_path / "data" / "labels.json")
    assert read_coco(tmp_path / "data").problems.counts == {ProblemKind.LABELS_WITHOUT_PICTURE: 1}


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif"])
def test_sizes_are_those_of_the_upright_picture(tmp_path, suffix):
    save_picture(tmp_path, f"turned.{suffix}", orientation=6)
    with Image.open(tmp_path / f"turned.{suffix}") as image:
        assert apply_exif_orientation(image).size == (HEIGHT, WIDTH)
    picture = BoxedPicture(f"turned.{suffix}", HEIGHT, WIDTH, (LabelledBox("a", 0, 0, HEIGHT, WIDTH),))
    write_coco(BoxedDataset(("a",), (picture,)), tmp_path / "labels.json")
    assert read_coco(tmp_path).pictures == (picture,)
    write_coco(BoxedDataset(("a",), (replace(picture, width=WIDTH, height=HEIGHT),)), tmp_path / "labels.json")
    assert read_coco(tmp_path).problems.counts == {ProblemKind.SIZE_DIFFERS: 1}
