"""Labels of captures, given one by one or by a CSV, and the export of labelled ones."""

import threading
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from equipoise.captures.capture import CAPTURE_POOLS
from equipoise.captures.capture_id import CaptureNotFound
from equipoise.captures.store import CaptureStore
from equipoise.workloads.image_folder import decode_images, find_labelled_images
from tests.support.captures import CLASSES, build_request
from tests.support.errors import raises_code

HEAVY_SCORE = -1e6  # no model gives it: a weight of 4 million, so that nearly every offer evicts another capture


def test_captures_most_useful_to_label_come_first(tmp_path):
    store = CaptureStore(str(tmp_path))
    for index in range(6):
        store.offer(build_request(pool=CAPTURE_POOLS[index % 2], source=str(index)))
    labelled_id = store.list_captures("drift")[0].id
    store.label_capture(labelled_id, "bee", CLASSES)
    captures = store.list_captures()
    assert [capture.pool for capture in captures] == ["drift", "drift", "usual", "usual", "usual", "drift"]
    assert captures[-1].id == labelled_id and captures[-1].label_given == "bee"
    assert captures[0].key > captures[1].key and captures[2].key > captures[3].key > captures[4].key
    assert (
        store.list_captures(limit=2) == captures[:2]
        and store.list_captures("usual", 1) == [captures[2]]
        and store.list_captures(limit=0) == []
    )


def test_new_label_replaces_the_old_one_and_keeps_the_image(tmp_path):
    store = CaptureStore(str(tmp_path))
    store.offer(build_request(side=4))
    [capture] = store.list_captures()
    png = store.read_png(capture.id)
    assert store.label_capture(capture.id, "bee", CLASSES) == replace(capture, label_given="bee")
    assert store.label_capture(capture.id, "cat", CLASSES).label_given == "cat"
    assert store.list_captures() == [replace(capture, label_given="cat")] and store.read_png(capture.id) == png
    assert len(list(tmp_path.iterdir())) == 2 and store.skipped_files == 0


def test_labelled_captures_are_never_evicted(tmp_path):
    store = CaptureStore(str(tmp_path), 8, seed=0)
    for _ in range(4):
        store.offer(build_request(1.0))
    labelled_ids = {capture.id for capture in store.list_captures()[1:]}
    for capture_id in labelled_ids:
        store.label_capture(capture_id, "bee", CLASSES)
    assert sum(store.offer(build_request(HEAVY_SCORE)) for _ in range(20)) > 0
    assert {capture.id for capture in store.list_captures() if capture.label_given} == labelled_ids and len(
        store.list_captures()
    ) == 4
    store.label_capture(store.list_captures()[0].id, "ant", CLASSES)
    store.evict()
    captures = store.list_captures()
    assert not any(store.offer(build_request(HEAVY_SCORE)) for _ in range(5)) and store.list_captures() == captures


def test_label_interrupted_by_a_kill_counts_once_and_is_kept(three_captures, tmp_path):
    store, ids = three_captures
    before = {path: path.read_bytes() for path in (tmp_path / "kept").glob(f"*{ids[0]}*")}
    store.label_capture(ids[0], "bee", CLASSES)
    for path, content in before.items():
        path.write_bytes(content)  # as if killed before it removed these files
    assert {capture.id: capture.label_given for capture in store.list_captures()} == {
        ids[0]: "bee",
        ids[1]: None,
        ids[2]: None,
    }
    assert len(store.list_captures()) == 3
    assert store.label_capture(ids[0], "cat", CLASSES).label_given == "cat" and store.read_png(ids[0])


def test_label_given_during_eviction_is_not_lost(tmp_path):
    store, labelled_ids, finished = CaptureStore(str(tmp_path), 20), set(), threading.Event()
    for _ in range(10):
        store.offer(build_request(1.0))

    def offer_captures():
        replica = CaptureStore(str(tmp_path), 20)
        for exponent in range(100):
            replica.offer(build_request(-(10.0**exponent)))
        finished.set()

    thread = threading.Thread(target=offer_captures)
    thread.start()
    while not finished.is_set() and len(labelled_ids) < 8:
        unlabelled = [capture for capture in store.list_captures() if capture.label_given is None]
        for capture in unlabelled[-1:]:  # the next to be evicted
            with suppress(CaptureNotFound):
                labelled_ids.add(store.label_capture(capture.id, "bee", CLASSES).id)
    thread.join()
    bee_ids = {capture.id for capture in store.list_captures() if capture.label_given == "bee"}
    assert bee_ids == labelled_ids and store.skipped_files == 0


@pytest.mark.parametrize("invalid_id", ["../x", "", "a" * 300, "0" * 15, "0" * 16 + "\n", "A" * 16, "\u0660" * 16])
def test_invalid_capture_id_is_refused(tmp_path, invalid_id):
    store = CaptureStore(str(tmp_path))
    for access in (store.read_png, lambda capture_id: store.label_capture(capture_id, "ant", CLASSES)):
        with raises_code("capture-missing") as error:
            access(invalid_id)
        assert len(str(error.value)) < 120


def test_missing_id_and_unknown_class_are_named_in_the_error(tmp_path):
    store = CaptureStore(str(tmp_path))
    store.offer(build_request())
    with raises_code("capture-missing", "0123456789abcdef"):
        store.read_png("0123456789abcdef")
    with raises_code("capture-missing", "0123456789abcdef"):
        store.label_capture("0123456789abcdef", "ant", CLASSES)
    with raises_code("class-unknown", "dog", "ant, bee, cat"):
        store.label_capture(store.list_captures()[0].id, "dog", CLASSES)
    with raises_code("class-unknown", "c19 and 80 more"):
        store.label_capture(store.list_captures()[0].id, "dog", [f"c{index}" for index in range(100)])


def test_csv_labels_captures(three_captures):
    store, ids = three_captures
    assert store.label_from_csv(f'\ufeffid,label\r\n{ids[0]},bee\r\n\r\n{ids[1]}, "cat"\r\n', CLASSES) == 2
    assert {capture.id: capture.label_given for capture in store.list_captures()} == dict(
        zip(ids, ["bee", "cat", None], strict=True)
    )
    assert store.label_from_csv("id,label\n", CLASSES) == 0


@pytest.mark.parametrize(
    ("csv_text", "message"),
    [
        ("", "row 1 must be id,label, got ''"),
        ("{0},bee", "row 1 must be id,label"),
        ("id,label\n{0},bee\n{1},dog\nx,y", "row 3: there is no class 'dog'; there are: ant, bee, cat"),
        ("id,label\n{0},bee\n\n../x,bee", r"row 4: '\.\./x' is not a capture id"),
        ("id,label\n{0},bee\n0123456789abcdef,bee", "row 3: there is no capture 0123456789abcdef"),
        ("id,label\n{0},bee\n{1},bee\n{0},cat", "row 4: [0-9a-f]{{16}} already has a label in row 2"),
        ("id,label\n{0},bee\n{1}", "row 3 has 1 columns"),
        ("id,label\n{0},bee\n{1},bee,cat", "row 3 has 3 columns"),
        ("id,label\n{0},", "row 2: there is no class ''"),
        ("id,label\n{0}," + "x" * 200_000, "row 2 is not CSV"),
    ],
)
def test_csv_with_an_invalid_row_labels_nothing(three_captures, csv_text, message):
    store, ids = three_captures
    with pytest.raises(ValueError, match=message.replace("{{", "{").replace("}}", "}")) as error:
        store.label_from_csv(csv_text.format(*ids), CLASSES)
    assert len(str(error.value).splitlines()) == 1
    assert not any(capture.label_given for capture in store.list_captures())


def test_folder_workload_reads_an_export(tmp_path):
    store, labels_and_seeds = CaptureStore(str(tmp_path / "kept")), {}
    for seed in range(9):
        store.offer(build_request(side=8, seed=seed, source=str(seed)))
    for capture in store.list_captures()[:-1]:
        labels_and_seeds[capture.id] = (CLASSES[int(capture.source) % 2], int(capture.source))
        store.label_capture(capture.id, labels_and_seeds[capture.id][0], CLASSES)
    counts = store.export_labelled(tmp_path / "new" / "out")
    names, paths, label_indices = find_labelled_images(tmp_path / "new" / "out")
    assert names == ["ant", "bee"] and sum(counts.values()) == len(paths) == 8
    readable, images = decode_images(paths, 8)
    assert readable.all()
    for path, label_index, image in zip(paths, label_indices, images, strict=True):
        name, seed = labels_and_seeds[path.stem]
        assert names[label_index] == name and np.array_equal(image.numpy(), build_request(side=8, seed=seed).picture)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_export_of_nothing_or_over_an_existing_folder_is_refused(three_captures, tmp_path):
    store, ids = three_captures
    with raises_code("captures-empty"):
        store.export_labelled(tmp_path / "out")
    store.label_from_csv(f"id,label\n{ids[0]},ant\n{ids[1]},bee", CLASSES)
    with raises_code("captures-empty", "dog, cat"):
        store.export_labelled(tmp_path / "out", ["dog", "cat"])
    assert store.export_labelled(tmp_path / "out", ["ant", "cat"]) == {"ant": 1}
    with raises_code("path-exists"):
        store.export_labelled(tmp_path / "out")


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "__pycache__", "", "a\\b", "nul\0"])
def test_class_that_cannot_be_a_folder_name_is_refused(three_captures, tmp_path, name):
    store, ids = three_captures
    store.label_capture(ids[0], name, [name, "bee"])
    store.label_capture(ids[1], "bee", [name, "bee"])
    with raises_code("labels-invalid"):
        store.export_labelled(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_damaged_image_is_not_exported(three_captures, tmp_path):
    store, ids = three_captures
    store.label_from_csv(f"id,label\n{ids[0]},ant\n{ids[1]},bee", CLASSES)
    [damaged] = (tmp_path / "kept").glob(f"*{ids[0]}-labelled.png")
    damaged.write_bytes(damaged.read_bytes()[:40])
    assert store.export_labelled(tmp_path / "out") == {"bee": 1} and store.skipped_files == 1
