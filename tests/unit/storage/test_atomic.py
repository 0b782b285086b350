import errno
import os
import stat
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from equipoise.storage.atomic import (
    atomic_folder,
    atomic_write,
    find_output_file,
    open_local_copy,
    read_json,
    write_json,
)
from tests.support.errors import raises_code
from tests.support.small_disk import mount_small_disk


@pytest.fixture(params=["disk", "bucket"])
def folder(request, tmp_path, bucket):
    return tmp_path if request.param == "disk" else bucket


def list_names(folder):
    return [path.name for path in folder.iterdir()]


def test_json_is_read_back(folder):
    write_json(folder / "new" / "facts.json", {"a": [1, None, "é"]})
    assert read_json(folder / "new" / "facts.json") == {"a": [1, None, "é"]}
    assert list_names(folder / "new") == ["facts.json"]


def test_json_is_written_for_people_to_read(folder):
    write_json(folder / "facts.json", {"a": [1]})
    assert (folder / "facts.json").read_text() == '{\n "a": [\n  1\n ]\n}\n'


def test_failed_write_leaves_only_the_old_file(folder):
    path = folder / "facts.json"
    write_json(path, 1)
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, float("nan"))
    with pytest.raises(KeyError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert read_json(path) == 1
    assert list_names(folder) == ["facts.json"]


def test_threads_that_write_one_file_at_once_leave_one_of_their_texts(tmp_path):
    both_write = threading.Barrier(2, timeout=60)

    def write(text):
        with atomic_write(tmp_path / "file") as temporary:
            both_write.wait()
            temporary.write_text(text)
            both_write.wait()
            assert temporary.read_text() == text

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, ["one", "another"]))
    assert list_names(tmp_path) == ["file"] and (tmp_path / "file").read_text() in ("one", "another")


def test_damaged_file_is_named_in_the_error(folder):
    path = folder / "facts.json"
    path.write_text('{"a": 1')
    with raises_code("file-damaged", "facts.json"):
        read_json(path)


def test_unreadable_file_is_refused_before_it_is_given_to_a_library(shared_folder):
    path = shared_folder / "weights.pt"
    path.write_bytes(b"1")
    path.chmod(0)
    with without_root(), pytest.raises(PermissionError), open_local_copy(path):
        raise AssertionError
    path.chmod(0o644)
    with without_root(), open_local_copy(path) as copy:
        assert copy.read_bytes() == b"1"


def test_what_is_no_file_is_refused_before_it_is_given_to_a_library(tmp_path):
    with raises_code("path-kind", tmp_path), open_local_copy(tmp_path):
        raise AssertionError
    with raises_code("path-kind", tmp_path):
        read_json(tmp_path)


@pytest.fixture
def shared_folder():
    """Yield a temporary folder that other users can read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def without_root():
    """Run the block as nobody where the tests run as root, who can read any file."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_pipe_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with raises_code("path-kind", tmp_path / name):
            write_json(tmp_path / name, 1)
    assert (tmp_path / "pipe").is_fifo() and sorted(list_names(tmp_path)) == ["link", "pipe"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_device_is_never_replaced(tmp_path):
    os.mknod(tmp_path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    with raises_code("path-kind", tmp_path / "null"):
        write_json(tmp_path / "null", 1)
    assert (tmp_path / "null").is_char_device() and list_names(tmp_path) == ["null"]


def test_folder_is_not_replaced_by_a_file(tmp_path):
    with raises_code("path-kind", tmp_path):
        write_json(tmp_path, 1)


def test_link_stays_and_the_file_that_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "facts.json").write_text("0")
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to(Path("there", "facts.json"))
    write_json(tmp_path / "first", 1)
    assert (tmp_path / "first").readlink() == Path("second") and read_json(tmp_path / "first") == 1
    assert list_names(tmp_path / "there") == ["facts.json"] and not (tmp_path / "there" / "facts.json").is_symlink()


def test_link_to_nothing_is_refused(tmp_path):
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("dangling", "loop"):
        with raises_code("path-kind", tmp_path / name, "symbolic link"):
            write_json(tmp_path / name, 1)
    assert sorted(list_names(tmp_path)) == ["dangling", "loop"]


def test_new_file_and_url_are_written_where_they_were_asked_for(tmp_path, bucket):
    assert find_output_file(tmp_path / "new") == tmp_path / "new"
    assert find_output_file(bucket / "new") == bucket / "new"


def test_full_disk_is_reported_with_the_file_that_was_asked_for(tmp_path):
    with mount_small_disk(tmp_path / "disk", "64k") as disk:
        with pytest.raises(OSError, match="No space left") as raised:
            write_json(disk / "facts.json", "x" * 200_000)
        assert raised.value.filename == str(disk / "facts.json") and list_names(disk) == []
        with pytest.raises(OSError, match="No space left") as raised, atomic_folder(disk / "folder") as temporary:
            write_json(temporary / "facts.json", "x" * 200_000)
        assert raised.value.filename == str(disk / "folder" / "facts.json") and list_names(disk) == []


def test_error_never_names_the_temporary_file(tmp_path):
    path = tmp_path / ("x" * 254)  # with what is added to the temporary name it is too long
    with pytest.raises(OSError, match="too long") as raised:
        write_json(path, 1)
    assert raised.value.filename == str(path)


def test_error_about_another_file_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as raised, atomic_write(tmp_path / "out"):
        (tmp_path / "input").read_bytes()
    assert raised.value.filename == str(tmp_path / "input")
    with pytest.raises(ConnectionRefusedError) as refused, atomic_write(tmp_path / "out"):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
    assert refused.value.filename is None
