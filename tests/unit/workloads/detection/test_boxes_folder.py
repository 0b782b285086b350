"""Workload of labelled pictures: any format of labels, four disjoint splits, and what is left out is named."""

import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from PIL import Image

from equipoise.boxes.box import BoxedDataset, BoxedPicture, LabelledBox
from equipoise.boxes.formats.coco import write_coco
from equipoise.boxes.formats.voc import write_voc
from equipoise.boxes.formats.yolo import write_yolo
from equipoise.config import TrainConfig
from equipoise.images.letterbox import fit_letterbox, load_letterboxed
from equipoise.training.loop import laps
from equipoise.workloads import load_workload
from equipoise.workloads.detection.boxed_pictures import read_boxed_pictures
from equipoise.workloads.detection.boxes_folder import deal_pictures, require_size
from tests.support.boxed_shelves import save_shelf_pictures
from tests.support.errors import raises_code

SPLITS = ("train", "validation", "reference", "test")


def build_config(folder, **changes):
    return TrainConfig(**({"workload": "boxes", "data": str(folder), "image_size": 96, "batch_size": 4} | changes))


@pytest.fixture
def shelves(tmp_path):
    return save_shelf_pictures(tmp_path, 40)


def test_all_formats_give_the_same_examples(tmp_path, shelves, caplog):
    write_coco(shelves, tmp_path / "labels.json")
    coco = load_workload(build_config(tmp_path))
    (tmp_path / "labels.json").unlink()
    write_voc(shelves, tmp_path)
    voc = load_workload(build_config(tmp_path))
    for file in tmp_path.rglob("*.xml"):
        file.unlink()
    write_yolo(shelves, tmp_path)
    yolo = load_workload(build_config(tmp_path))
    assert not caplog.records
    assert [len(getattr(coco, name)) for name in SPLITS] == [24, 6, 4, 6]
    for workload in (voc, yolo):
        assert sorted(workload.classes) == sorted(coco.classes)
        for name in SPLITS:
            assert torch.equal(getattr(workload, name).inputs, getattr(coco, name).inputs)
    for name in SPLITS:
        assert torch.allclose(getattr(yolo, name).targets, getattr(coco, name).targets, atol=1e-3)


def test_splits_are_disjoint_and_of_all_pictures(tmp_path, shelves):
    write_coco(shelves, tmp_path / "labels.json")
    workload = load_workload(build_config(tmp_path))
    pictures = [{bytes(image.numpy().tobytes()) for image in getattr(workload, name).inputs} for name in SPLITS]
    assert sum(map(len, pictures)) == 40
    assert not any(first & second for first, second in combinations(pictures, 2))


def test_boxes_are_around_the_things_in_the_square_picture(tmp_path):
    pictures = []
    for index in range(20):
        width, height = (300, 120) if index % 2 else (90, 200)
        box = LabelledBox("block", 10 + index, 20, 60, 50)
        image = Image.new("RGB", (width, height))
        image.paste((255, 255, 255), (10 + index, 20, 70 + index, 70))
        image.save(tmp_path / f"{index}.png")
        pictures.append(BoxedPicture(f"{index}.png", width, height, (box,)))
    write_coco(BoxedDataset(("block",), tuple(pictures)), tmp_path / "labels.json")
    workload = load_workload(build_config(tmp_path, image_size=64))
    for split in (workload.train, workload.test):
        for image, target in zip(split.inputs, split.targets[:, 0].tolist(), strict=True):
            rows, columns = np.nonzero(image.amin(0).numpy() > 190)
            found = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
            expected = [target[1], target[2], target[1] + target[3], target[2] + target[4]]
            assert np.abs(np.array(found) - expected).max() <= 1.5


def test_letterbox_maps_boxes_there_and_back():
    for width, height in ((300, 120), (119, 451), (5, 4000), (64, 64)):
        letterbox = fit_letterbox(width, height, 64)
        corners = np.array([[0, 0, width, height], [1.5, 2, 3, 1]], np.float64)
        square = letterbox.boxes_to_square(corners)
        assert (square[0] >= 0).all() and (square[0, :2] + square[0, 2:] <= 64 + 1e-9).all()
        assert max(square[0, 2:]) == pytest.approx(64)
        assert np.allclose(letterbox.boxes_to_picture(square), corners)


def test_photograph_is_turned_upright_before_it_is_fitted(tmp_path):
    wide = Image.new("RGB", (60, 40), (0, 0, 0))
    wide.paste((255, 255, 255), (0, 0, 30, 40))
    exif = Image.Exif()
    exif[0x0112] = 6
    wide.save(tmp_path / "turned.jpg", exif=exif, quality=95)
    pixels, letterbox = load_letterboxed(tmp_path / "turned.jpg", 60)
    assert pixels.shape == (3, 60, 60) and letterbox.left == 10 and letterbox.top == 0
    assert pixels[:, :28, 12:48].min() > 200 and pixels[:, 32:, 12:48].max() < 50


def test_what_cannot_be_used_is_named_and_counted(tmp_path, shelves, caplog):
    write_coco(shelves, tmp_path / "labels.json")
    content = (tmp_path / "photos" / "IMG_0003.png").read_bytes()
    (tmp_path / "photos" / "IMG_0003.png").write_bytes(content[: len(content) // 2])
    (tmp_path / "photos" / "IMG_0004.png").unlink()
    workload = load_workload(build_config(tmp_path))
    assert sum(len(getattr(workload, name)) for name in SPLITS) == 38
    assert "IMG_0003.png" in caplog.text and "labels without picture" in caplog.text and "IMG_0004.png" in caplog.text


def test_large_folder_streams_the_same_pictures(tmp_path, shelves, monkeypatch):
    write_coco(shelves, tmp_path / "labels.json")
    config = build_config(tmp_path, max_examples=24, target=1.0, threads=2)
    in_memory = list(laps(config))
    monkeypatch.setattr(sys.modules["equipoise.workloads.detection.boxed_pictures"], "MAX_IN_MEMORY_BYTES", 0)
    assert not isinstance(load_workload(config).train.inputs, torch.Tensor)
    assert [lap.loss for lap in laps(config)] == [lap.loss for lap in in_memory]


def test_pictures_are_dealt_in_proportion_by_their_rarest_class():
    rng = np.random.default_rng(0)
    pictures = [
        BoxedPicture(
            f"{i}", 10, 10, tuple(LabelledBox("rare" if i < 20 else "common", 0, 0, 5, 5) for _ in range(i % 3))
        )
        for i in rng.permutation(100)
    ]
    parts = deal_pictures(pictures, [0.6, 0.15, 0.1, 0.15])
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
    assert [len(part) for part in parts] == [60, 15, 10, 15]
    rare = [sum(bool(pictures[i].boxes) and pictures[i].boxes[0].label == "rare" for i in part) for part in parts]
    assert all(abs(count - 13 * share) <= 1.5 for count, share in zip(rare, [0.6, 0.15, 0.1, 0.15], strict=True))


def test_folders_that_cannot_be_learned_are_refused(tmp_path):
    with raises_code("path-kind", "none"):
        load_workload(build_config(tmp_path / "none"))
    shelves = save_shelf_pictures(tmp_path, 12)
    write_coco(shelves, tmp_path / "labels.json")
    with raises_code("dataset-invalid", "12 labelled pictures", "at least 20"):
        load_workload(build_config(tmp_path))
    with raises_code("option-range", "100"):
        load_workload(build_config(tmp_path, image_size=100))
    with raises_code("model-unknown", "'centre'"):
        load_workload(TrainConfig(workload="shelf", image_size=48, model="centre"))


def test_split_without_anything_to_find_is_refused(tmp_path):
    shelves = save_shelf_pictures(tmp_path, 24)
    empty = tuple(replace(picture, boxes=()) for picture in shelves.pictures[2:])
    write_coco(replace(shelves, pictures=shelves.pictures[:2] + empty), tmp_path / "labels.json")
    with raises_code("dataset-invalid", "too few of its pictures have boxes", "label more"):
        load_workload(build_config(tmp_path))


def test_sizes_are_a_few_whole_places_of_the_map():
    assert [require_size(size) for size in (32, 96, 2048)] == [32, 96, 2048]
    for size in (24, 100, 2056):
        with raises_code("option-range", f"got --image-size {size}"):
            require_size(size)


def test_folder_without_a_readable_picture_has_no_pictures(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    kept, pixels, problems = read_boxed_pictures(tmp_path, [BoxedPicture("a.png", 8, 8, ())], 32, 1)
    assert (kept, pixels.shape) == ([], (0, 3, 32, 32)) and [problem.place for problem in problems] == ["a.png"]
