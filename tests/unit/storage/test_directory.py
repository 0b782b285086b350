"""Flat directories of files, which a folder and an object store have alike."""

import stat

import pytest

from equipoise.storage.directory import open_directory


@pytest.fixture(params=["disk", "bucket"])
def location(request, tmp_path, memory):
    return str(tmp_path / "a" / "kept") if request.param == "disk" else "memory://bucket/kept/"


def test_files_are_written_listed_read_and_removed(location):
    directory = open_directory(location)
    assert directory.list_files() == []
    for name, content in (("one", b"1"), ("two", b""), ("one", b"changed")):
        directory.write_file(name, content)
    assert sorted(directory.list_files()) == ["one", "two"]
    assert directory.read_files(["two", "missing", "one"]) == {"two": b"", "one": b"changed"}
    assert directory.read_files([]) == {}
    for _ in range(2):  # another replica may have removed it
        directory.remove_file("one")
    assert directory.list_files() == ["two"] == open_directory(location).list_files()


def test_folders_in_it_are_no_files(location):
    directory = open_directory(location)
    directory.write_file("one", b"1")
    open_directory(f"{location.rstrip('/')}/below").write_file("two", b"2")
    assert directory.list_files() == ["one"]


def test_folder_is_for_its_owner_alone_and_links_in_it_are_no_files(tmp_path):
    directory = open_directory(str(tmp_path / "kept"))
    directory.write_file("one", b"1")
    assert stat.S_IMODE((tmp_path / "kept").stat().st_mode) == 0o700
    (tmp_path / "kept" / "link").symlink_to(tmp_path / "kept" / "one")
    assert directory.list_files() == ["one"]
