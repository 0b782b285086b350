"""Capture stores in object stores and on disks that are full, read-only or hold something else."""

import subprocess

import pytest

from equipoise.captures.capture import CaptureName
from equipoise.captures.store import CaptureStore
from equipoise.storage.directory import LocalDirectory, convert_to_os_error
from tests.support.captures import CLASSES, build_request, draw_keys
from tests.support.errors import raises_code

STALE_ID = "00000000aaaaaaaa"


def test_object_store_works_like_a_folder(memory, tmp_path):
    replicas = [CaptureStore("memory://bucket/captures", 8, seed=seed) for seed in (0, 1)]
    for index in range(60):
        replicas[index % 2].offer(build_request(1.0, side=4))
    store = replicas[0]
    assert [capture.key for capture in store.list_captures()] == sorted(
        draw_keys(0, [1] * 30) + draw_keys(1, [1] * 30), reverse=True
    )[:4]
    first_id, second_id = (capture.id for capture in store.list_captures()[:2])
    assert store.label_from_csv(f"id,label\n{first_id},ant\n{second_id},bee\n", CLASSES) == 2
    assert store.label_capture(second_id, "cat", CLASSES).label_given == "cat"
    assert store.read_png(first_id)[:4] == b"\x89PNG" and len(memory.ls("/bucket/captures")) == 8
    assert store.export_labelled(tmp_path / "out") == {"ant": 1, "cat": 1}
    store._remove_files(store._scan_files().complete[0])
    store._remove_files(CaptureName("usual", 0.5, STALE_ID, False))  # already removed by another replica
    assert len(store.list_captures()) == 3 and store.skipped_files == 0


def test_file_url_is_a_local_folder(tmp_path):
    store = CaptureStore(f"file://{tmp_path}/kept")
    assert store.offer(build_request()) and isinstance(store._directory, LocalDirectory)
    assert len(list((tmp_path / "kept").iterdir())) == 2


@pytest.mark.parametrize("location", ["nonsense://x", "zip://x::file://y"])
def test_unsupported_location_is_refused(location):
    with raises_code("store-unsupported"):
        CaptureStore(location)


def test_errors_of_a_storage_client_become_os_errors():
    with pytest.raises(OSError, match="KeyError: 'bucket'"), convert_to_os_error():
        raise KeyError("bucket")
    with pytest.raises(FileNotFoundError), convert_to_os_error():
        raise FileNotFoundError


def test_file_in_place_of_the_folder_is_reported_and_retried_later(store_with_clock, clock, tmp_path):
    (tmp_path / "kept").write_text("")
    assert not store_with_clock.offer(build_request())
    assert store_with_clock.last_error == f"cannot write captures to {tmp_path}/kept: Not a directory; make it writable"
    (tmp_path / "kept").unlink()
    clock[0] += 29
    assert (
        not store_with_clock.offer(build_request()) and store_with_clock.last_error and not (tmp_path / "kept").exists()
    )
    clock[0] += 2
    assert store_with_clock.offer(build_request()) and store_with_clock.last_error is None


def test_file_in_place_of_an_object_store_folder_is_reported(memory):
    memory.pipe_file("/bucket", b"")
    store = CaptureStore("memory://bucket/captures")
    assert not store.offer(build_request())
    assert store.last_error and len(store.last_error.splitlines()) == 1
    memory.rm_file("/bucket")


@pytest.mark.parametrize(("side", "used_bytes"), [(64, 0), (1, 4096)])
def test_full_disk_holds_no_incomplete_capture_and_is_retried(small_disk, clock, side, used_bytes):
    store = CaptureStore(str(small_disk), clock=lambda: clock[0])
    # The disk has 16 pages: with one page less, the file that does not fit is the JSON.
    (small_disk / "taken").write_bytes(bytes(used_bytes))
    count = 0
    while store.offer(build_request(side=side)):
        count += 1
    assert count > 1 and "No space left on device" in store.last_error
    assert len(store.list_captures()) == count and store.skipped_files == 1
    assert len(list(small_disk.iterdir())) == 2 * count + 1
    [last, *_] = small_disk.glob("*.json")
    last.unlink()
    last.with_suffix(".png").unlink()
    clock[0] += 29
    assert not store.offer(build_request(side=side)) and store.last_error
    clock[0] += 2
    assert store.offer(build_request(side=side)) and store.last_error is None
    assert len(list(small_disk.iterdir())) == 2 * count + 1


def test_label_on_a_full_disk_changes_nothing(small_disk):
    store = CaptureStore(str(small_disk))
    while store.offer(build_request(side=64)):
        pass
    before, files = store.list_captures(), set(small_disk.iterdir())
    with pytest.raises(OSError, match="No space left"):
        store.label_capture(before[0].id, "bee", CLASSES)
    assert store.list_captures() == before and set(small_disk.iterdir()) == files


def test_read_only_disk_is_reported(small_disk, clock):
    store = CaptureStore(str(small_disk), clock=lambda: clock[0])
    assert store.offer(build_request())
    subprocess.run(["/bin/mount", "-o", "remount,ro", small_disk], check=True)
    assert not store.offer(build_request())
    assert "Read-only file system" in store.last_error and len(store.list_captures()) == 1
