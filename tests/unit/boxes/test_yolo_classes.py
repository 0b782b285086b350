"""Numbers of classes in YOLO's text files: which name each stands for, and when that is not clear."""

from PIL import Image

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.boxes.formats.yolo import read_yolo, write_yolo
from equipoise.boxes.problems import ProblemKind
from tests.support.errors import raises_code


def save_picture(folder, name):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (60, 40)).save(folder / name)


def write_two_yolo_folders(root, first, second):
    for name in ("first/a.png", "second/b.png"):
        save_picture(root, name)
        (root / name).with_suffix(".txt").write_text("1 0.5 0.5 1 1")
    (root / "first" / "classes.txt").write_text(first)
    (root / "second" / "classes.txt").write_text(second)


def test_yolo_folders_that_number_the_classes_differently_are_refused(tmp_path):
    write_two_yolo_folders(tmp_path, "cola\nwater\n", "water\ncola\ncrisps\n")
    with raises_code("dataset-invalid", "first/classes.txt", "second/classes.txt"):
        read_yolo(tmp_path)
    (tmp_path / "second" / "classes.txt").unlink()
    (tmp_path / "data.yaml").write_text("names: [water, cola]")
    with raises_code("dataset-invalid", "first/classes.txt", "data.yaml"):
        read_yolo(tmp_path)


def test_yolo_folder_may_know_only_the_first_classes(tmp_path):
    write_two_yolo_folders(tmp_path, "cola\nwater\n", "cola\nwater\ncrisps\n")
    dataset = read_yolo(tmp_path)
    assert dataset.classes == ("cola", "water", "crisps")
    assert [picture.boxes[0].label for picture in dataset.pictures] == ["water", "water"]


def read_numbered_boxes(root, lines, name="classes.txt", encoding="utf-8"):
    save_picture(root, "a.png")
    (root / name).write_bytes(lines.encode(encoding))
    (root / "a.txt").write_text("".join(f"{number} 0.5 0.5 1 1\n" for number in range(3)))
    return read_yolo(root)


def test_empty_line_in_a_list_of_yolo_classes_has_a_number(tmp_path):
    dataset = read_numbered_boxes(tmp_path, "cola\n\nwater\n\n")
    assert [box.label for box in dataset.pictures[0].boxes] == ["cola", "water"]
    assert dataset.classes == ("cola", "water")
    assert dataset.problems.examples == {ProblemKind.CLASS_UNKNOWN: ("a.txt, line 2: 1",)}


def test_yolo_class_with_two_numbers_is_one_class(tmp_path):
    assert read_numbered_boxes(tmp_path, "cola\nwater\ncola\n").classes == ("cola", "water")


def test_numbers_of_yolo_classes_may_be_quoted(tmp_path):
    assert read_numbered_boxes(tmp_path, "names: {'1': b, '0': a, '2': c}", "data.yaml").classes == ("a", "b", "c")


def test_yolo_classes_in_another_encoding_are_refused(tmp_path):
    with raises_code("dataset-invalid", "not UTF-8"):
        read_numbered_boxes(tmp_path, "Flöte\nFläte\n", encoding="latin-1")


def test_picture_may_have_the_name_of_a_list_of_pictures(tmp_path):
    boxes = {"test.png": (LabelledBox("cola", 0, 0, 6, 4),), "train.png": ()}
    dataset = BoxedDataset(("cola",), tuple(BoxedPicture(name, 60, 40, boxes[name]) for name in boxes))
    for name in boxes:
        save_picture(tmp_path, name)
    write_yolo(dataset, tmp_path)
    assert read_yolo(tmp_path) == dataset
    (tmp_path / "train.txt").write_text("images/1.png\n")
    assert read_yolo(tmp_path).problems.examples == {ProblemKind.PICTURE_WITHOUT_LABELS: ("train.png",)}
