"""Labels of the labelling page and the captures that they are of, by the id in a picture's name."""

from dataclasses import replace

import pytest

from equipoise.captures.store import CaptureStore
from equipoise.labels.captured_labels import find_capture_id, read_captured_labels
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.store import LabelStore
from tests.support.boxed_captures import capture_and_label, save_boxes
from tests.support.errors import raises_code
from tests.support.labelling import CLASSES


def read_ids(tmp_path, kind="boxes", since=0.0):
    store = CaptureStore(str(tmp_path / "kept"))
    return {entry.metadata.id for entry in read_captured_labels(store, tmp_path / "labels", kind, since)}


def test_labels_are_read_with_the_facts_of_their_request(tmp_path):
    captured = capture_and_label(tmp_path, 3, labelled=2)
    store = CaptureStore(str(tmp_path / "kept"))
    entries = read_captured_labels(store, tmp_path / "labels", "boxes")
    assert {(entry.metadata.id, entry.labels.boxes) for entry in entries} == {(m.id, (box,)) for m, box in captured[:2]}
    assert {entry.metadata.pool for entry in entries} == {"drift"}


def test_labels_count_from_a_moment_on(tmp_path):
    captured = capture_and_label(tmp_path, 3)
    last = max(metadata.at for metadata, _ in captured)
    assert read_ids(tmp_path, since=last) == {metadata.id for metadata, _ in captured if metadata.at >= last}
    assert read_ids(tmp_path, since=last + 1) == set()


def test_labels_of_other_pictures_and_of_captures_that_are_gone_are_left_out(tmp_path):
    captured = capture_and_label(tmp_path, 3)
    LabelStore(tmp_path / "labels").save_labels(PictureLabels(picture="own.png", width=9, height=9, boxes=()), 0)
    gone = captured[0][0].id
    for path in (tmp_path / "kept").glob(f"*{gone}*"):
        path.unlink()
    assert read_ids(tmp_path) == {metadata.id for metadata, _ in captured[1:]}


def test_capture_that_has_a_class_too_is_found_under_its_new_name(tmp_path):
    ((metadata, _),) = capture_and_label(tmp_path, 1)
    CaptureStore(str(tmp_path / "kept")).label_capture(metadata.id, "cola", CLASSES)
    assert read_ids(tmp_path) == {metadata.id}


@pytest.mark.parametrize(
    ("kind", "folder", "code", "mentioned"),
    [("class", "labels", "option-conflict", "needs class"), ("boxes", "elsewhere", "path-missing", "equipoise label")],
)
def test_folder_of_other_labels_is_refused(tmp_path, kind, folder, code, mentioned):
    capture_and_label(tmp_path, 1)
    with raises_code(code, mentioned, folder):
        read_captured_labels(CaptureStore(str(tmp_path / "kept")), tmp_path / folder, kind)


def test_id_is_that_of_a_capture_in_any_folder(tmp_path):
    ((metadata, box),) = capture_and_label(tmp_path, 1, labelled=0)
    labels = save_boxes(tmp_path, metadata.id, (box,))
    assert find_capture_id(labels.picture) == find_capture_id(f"kept/{labels.picture}") == metadata.id
    assert find_capture_id(replace(labels, picture="photo.png").picture) == ""
