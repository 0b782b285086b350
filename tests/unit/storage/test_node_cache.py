"""Copies of data behind a URL: made once, whole or absent, and made anew where the data have changed."""

import logging
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from equipoise.storage.node_cache import (
    copy_objects,
    fetch_data,
    find_cache_folder,
    make_copy,
    name_entry,
    require_space,
)
from equipoise.storage.object_listing import ObjectListing, StoredObject, list_objects
from equipoise.storage.retry import RETRY_SECONDS_VARIABLE, StoreUnavailable
from jobs.cluster.processes import wait_until
from tests.support.errors import raises_code
from tests.support.small_disk import mount_small_disk

CONTENTS = {"lawn/1.png": b"one", "lawn/2.png": b"", "roof/deep/er/3.png": bytes(range(256)) * 1000}


def read_tree(folder):
    """Return the contents of all files below a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write_tree(folder, contents):
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def url(tmp_path):
    write_tree(tmp_path / "photos", CONTENTS)
    return f"file://{tmp_path}/photos"


def test_path_is_returned_as_it_is(cache):
    assert fetch_data("data/x") == Path("data/x")
    assert not cache.exists()


def test_data_are_copied_once_and_only_the_user_may_read_them(cache, url, caplog):
    folder = fetch_data(url)
    assert read_tree(folder) == CONTENTS
    assert folder.is_relative_to(cache) and "photos" in str(folder.relative_to(cache))
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    before = [path.stat() for path in sorted(folder.rglob("*"))]
    assert fetch_data(url) == fetch_data(url + "/") == folder
    assert [path.stat() for path in sorted(folder.rglob("*"))] == before
    assert len(caplog.messages) == 1 and "copying 3 objects (0.256 MB)" in caplog.messages[0]


def test_changed_data_are_copied_anew_and_the_older_copy_stays(cache, url, tmp_path):
    older = fetch_data(url)
    write_tree(tmp_path / "photos", {"lawn/1.png": b"changed", "lawn/4.png": b"four"})
    (tmp_path / "photos" / "lawn" / "2.png").unlink()
    newer = fetch_data(url)
    assert read_tree(older) == CONTENTS
    assert read_tree(newer) == {
        "lawn/1.png": b"changed",
        "lawn/4.png": b"four",
        "roof/deep/er/3.png": CONTENTS["roof/deep/er/3.png"],
    }


def test_several_threads_make_one_copy(cache, url, caplog):
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(fetch_data, [url] * 8))
    assert len(folders) == 1 and read_tree(folders.pop()) == CONTENTS
    assert len(caplog.messages) == 1


def test_copy_is_prepared_before_it_appears_and_apart_for_each_purpose(cache, url):
    prepared_folders = []

    def prepare(folder):
        assert read_tree(folder) == CONTENTS
        prepared_folders.append(folder)
        (folder / "unpacked").write_text("x")

    folder = fetch_data(url, purpose="CIFAR10", prepare=prepare)
    assert fetch_data(url, purpose="CIFAR10", prepare=prepare) == folder
    assert read_tree(folder) == CONTENTS | {"unpacked": b"x"}
    assert len(prepared_folders) == 1 and not prepared_folders[0].exists()
    assert read_tree(fetch_data(url)) == CONTENTS


def test_copy_whose_preparation_failed_is_absent_until_it_succeeds(cache, url):
    with pytest.raises(ZeroDivisionError):
        fetch_data(url, prepare=lambda folder: 1 / 0)
    assert not list(cache.rglob("files"))
    assert read_tree(fetch_data(url)) == CONTENTS


def test_interrupted_copy_goes_on_with_the_objects_that_are_missing(cache, url, caplog):
    folder = fetch_data(url)
    partial, incoming = folder.with_name("partial"), folder.with_name("incoming")
    folder.rename(partial)
    write_tree(incoming, {"12345": b"half of"})
    (partial / "roof/deep/er/3.png").write_bytes(b"short")
    whole = (partial / "lawn/1.png").stat()
    caplog.clear()
    assert read_tree(fetch_data(url)) == CONTENTS
    assert "copying 1 objects" in caplog.messages[0]
    assert (folder / "lawn/1.png").stat().st_ino == whole.st_ino
    assert not partial.exists() and not incoming.exists()


WAIT_IN_PREPARATION = """
import sys, time
from equipoise.storage.node_cache import fetch_data
def wait(folder):
    print("copied", flush=True)
    time.sleep(600)
fetch_data(sys.argv[1], prepare=wait)
"""


def test_copy_of_a_killed_process_is_absent_and_its_lock_is_free(cache, url):
    process = subprocess.Popen([sys.executable, "-c", WAIT_IN_PREPARATION, url], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "copied\n"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fetch_data, url)
        wait_until(lambda: is_locked_by_several(cache, process.pid), 60, "the second process waits for the lock")
        assert not waiting.done() and not list(cache.rglob("files"))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert read_tree(waiting.result(timeout=60)) == CONTENTS


def is_locked_by_several(cache, pid):
    """Return whether a process waits for the lock that another holds."""
    (lock,) = cache.rglob(".lock")
    inode = f":{lock.stat().st_ino} "
    lines = [line for line in Path("/proc/locks").read_text().splitlines() if inode in line]
    return any("->" in line for line in lines) and any(f" {pid} " in line for line in lines)


def test_data_that_change_while_they_are_copied_are_refused(cache, url, tmp_path):
    stale = list_objects(url)
    write_tree(tmp_path / "photos", {"lawn/5.png": b"five"})
    for removed in ((), ("lawn/1.png",)):
        for name in removed:
            (tmp_path / "photos" / name).unlink()
        entry = tmp_path / "entry"
        entry.mkdir(exist_ok=True)
        with raises_code("dataset-unavailable", url, "changed"):
            make_copy(stale, entry, entry / "files", None)
        assert not (entry / "files").exists()
    assert set(read_tree(fetch_data(url))) == {"lawn/2.png", "lawn/5.png", "roof/deep/er/3.png"}


def test_nothing_is_kept_of_a_copy_of_several_versions(url, tmp_path):
    stale, entry = list_objects(url), tmp_path / "entry"
    write_tree(tmp_path / "photos", {"lawn/5.png": b"five"})
    entry.mkdir()
    with raises_code("dataset-unavailable", url, "changed"):
        make_copy(stale, entry, entry / "files", None)
    assert not (entry / "partial").exists()


def test_object_of_another_size_than_listed_is_refused(url, tmp_path):
    (tmp_path / "incoming").mkdir()
    with raises_code("dataset-unavailable", "lawn/1.png"):
        copy_objects(url, [StoredObject("lawn/1.png", 4, "")], tmp_path / "to", tmp_path / "incoming")
    assert not (tmp_path / "to" / "lawn" / "1.png").exists()


def test_first_error_ends_the_copy(url, tmp_path):
    (tmp_path / "incoming").mkdir()
    objects = [StoredObject("missing", 0, "") for _ in range(5000)] + [StoredObject("lawn/1.png", 3, "")]
    with raises_code("dataset-unavailable"):
        copy_objects(url, objects, tmp_path / "to", tmp_path / "incoming")
    assert not (tmp_path / "to").exists()


def test_disk_without_room_is_refused_before_and_while_copying(url, tmp_path, monkeypatch):
    with mount_small_disk(tmp_path / "small", "128k") as disk:
        monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(disk / "cache"))
        with raises_code("disk-full", url, "EQUIPOISE_CACHE_DIR"):
            fetch_data(url)
        (disk / "incoming").mkdir()
        item = StoredObject("roof/deep/er/3.png", 256_000, "")
        with raises_code("disk-full", url, "EQUIPOISE_CACHE_DIR"):
            copy_objects(url, [item], disk / "to", disk / "incoming")
        monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(tmp_path / "large"))
        assert read_tree(fetch_data(url)) == CONTENTS


def test_cache_that_cannot_be_written_is_refused(url, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("EQUIPOISE_CACHE_DIR", str(tmp_path / "file"))
    with raises_code("path-access", url, "EQUIPOISE_CACHE_DIR"):
        fetch_data(url)


@pytest.mark.parametrize(
    "url", ["s3://name:open-sesame@bucket/x", "s3:/name:open-sesame@bucket/x", "s3://b/x?sig=open"]
)
def test_url_with_a_secret_is_refused_without_repeating_it(cache, url):
    with raises_code("url-secret") as raised:
        fetch_data(url)
    assert "open" not in str(raised.value)


def test_store_that_does_not_answer_is_reported_after_the_retry_time(cache, monkeypatch):
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-seen",
        RETRY_SECONDS_VARIABLE: "0",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreUnavailable, match="s3://bucket/photos does not answer") as raised:
        fetch_data("s3://bucket/photos")
    assert "not-to-be-seen" not in str(raised.value)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"EQUIPOISE_CACHE_DIR": "/x/y", "XDG_CACHE_HOME": "/z"}, "/x/y"),
        ({"EQUIPOISE_CACHE_DIR": "", "XDG_CACHE_HOME": "/z"}, "/z/equipoise"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/home/x"}, "/home/x/.cache/equipoise"),
        ({"HOME": "/home/x"}, "/home/x/.cache/equipoise"),
    ],
)
def test_cache_lies_where_the_environment_says(monkeypatch, variables, expected):
    for name in ("EQUIPOISE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(find_cache_folder()) == expected


def test_relative_cache_folder_is_below_the_working_directory(monkeypatch):
    monkeypatch.setenv("EQUIPOISE_CACHE_DIR", "copies")
    assert find_cache_folder() == Path(os.getcwd(), "copies")  # noqa: PTH109


def test_name_of_a_copy_is_readable_and_of_bounded_length():
    listing = ObjectListing(f"s3://bucket/my photos, {'x' * 100}", ())
    assert name_entry(listing, "") == f"my-photos-{'x' * 30}-{listing.digest[:24]}"
    assert name_entry(listing, "CIFAR10") == f"my-photos-{'x' * 30}-CIFAR10-{listing.digest[:24]}"


def test_disk_without_room_is_refused_with_the_megabytes_that_are_needed(tmp_path):
    objects = [StoredObject("a", 1_234_567_890_123_400_000, ""), StoredObject("b", 10**11, "")]
    (tmp_path / "partial").mkdir()
    with raises_code("disk-full", f"to {tmp_path}: it takes 1,234,567,990,123.4 MB, "):
        require_space("s3://bucket/x", objects, tmp_path / "partial")


@pytest.fixture(autouse=True)
def _capture_warnings(caplog):
    caplog.set_level(logging.WARNING)
