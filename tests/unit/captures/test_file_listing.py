"""Captures that somebody labels elsewhere are held: they make no room for others, and others know it."""

import json
import os

import pytest

from equipoise.captures.capture import CaptureName
from equipoise.captures.file_listing import HELD_SUFFIX, held_file_name, hold_capture, sort_capture_files
from equipoise.captures.store import CaptureStore
from tests.support.captures import build_request


def list_ids(store):
    return {capture.id for capture in store.list_captures(limit=None)}


def find_image(folder, capture_id):
    (path,) = folder.glob(f"*-{capture_id}*.png")
    return path


def test_held_captures_stay_while_others_make_room(tmp_path):
    store = CaptureStore(str(tmp_path), 6, seed=0)
    for _ in range(3):
        store.offer(build_request(1.0))
    least = min(store.list_captures(), key=lambda capture: capture.key)
    hold_capture(find_image(tmp_path, least.id))
    for _ in range(60):
        store.offer(build_request(0.1))
    assert least.id in list_ids(store) and len(list_ids(store)) == 3
    assert store.skipped_files == 0  # the mark is no file of somebody else


def test_capture_held_since_the_files_were_listed_stays(tmp_path):
    store = CaptureStore(str(tmp_path), 4, seed=0, listing_seconds=1e9)
    for _ in range(2):
        store.offer(build_request(1.0))
    ids = list_ids(store)
    for capture_id in ids:
        hold_capture(find_image(tmp_path, capture_id))
    for _ in range(40):
        store.offer(build_request(0.1))
    assert ids <= list_ids(store)
    store.evict()
    assert list_ids(store) == ids  # there is no room beside them


def test_held_captures_of_an_earlier_alarm_stay(tmp_path):
    store = CaptureStore(str(tmp_path), 10)
    for _ in range(4):
        store.offer(build_request())
    held = sorted(list_ids(store))[0]
    hold_capture(find_image(tmp_path, held))
    store.remove_older(2e9 + 1e9)
    assert list_ids(store) == {held}


def test_labelled_capture_is_not_held_and_other_images_are_left_alone(tmp_path):
    store = CaptureStore(str(tmp_path))
    store.offer(build_request())
    (capture,) = store.list_captures()
    store.label_capture(capture.id, "ant", ["ant"])
    (tmp_path / "photo.png").touch()
    for path in (find_image(tmp_path, capture.id), tmp_path / "photo.png"):
        hold_capture(path)
    assert not list(tmp_path.glob(f"*{HELD_SUFFIX}"))


def test_mark_without_its_capture_is_removed_after_an_hour(tmp_path):
    name = CaptureName("drift", 0.5, "00000000aaaaaaaa", False)
    (tmp_path / held_file_name(name)).touch()
    listing = sort_capture_files(path.name for path in tmp_path.iterdir())
    assert listing.others == {held_file_name(name)} and not listing.held_ids and not listing.complete
    CaptureStore(str(tmp_path)).evict()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_folder_that_cannot_be_written_is_no_failure(tmp_path):
    store = CaptureStore(str(tmp_path))
    store.offer(build_request())
    (path,) = tmp_path.glob("*.png")
    tmp_path.chmod(0o500)
    hold_capture(path)
    tmp_path.chmod(0o700)


def test_listing_tells_captures_from_other_files(tmp_path):
    store = CaptureStore(str(tmp_path))
    for _ in range(2):
        store.offer(build_request())
    first, second = sorted(store.list_captures(), key=lambda capture: capture.id)
    hold_capture(find_image(tmp_path, first.id))
    (tmp_path / "notes.txt").write_text(json.dumps("mine"))
    listing = sort_capture_files(path.name for path in tmp_path.iterdir())
    assert {name.id for name in listing.complete} == {first.id, second.id}
    assert listing.held_ids == {first.id} and listing.others == {"notes.txt"}
    assert [listing.makes_room(name) for name in sorted(listing.complete, key=lambda name: name.id)] == [False, True]
