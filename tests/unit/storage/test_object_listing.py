"""Listings of what is below a URL: complete, the same for the same content, and safe to copy."""

import os

import pytest

from equipoise.storage.object_listing import StoredObject, find_version, list_objects
from tests.support.errors import raises_code


def describe_objects(url):
    return [(item.name, item.size_bytes) for item in list_objects(url).objects]


def test_objects_of_all_folders_are_listed_by_name_and_size(bucket):
    for name in ("b/c/two.txt", "a.txt", "b/one.txt"):
        (bucket / "data" / name).write_text(name)
    (bucket / "data2" / "another.txt").write_text("")
    expected = [("a.txt", 5), ("b/c/two.txt", 11), ("b/one.txt", 9)]
    assert describe_objects("memory://bucket/data") == describe_objects("memory://bucket/data//") == expected
    assert list_objects("memory://bucket/data").total_bytes == 25
    assert [name for name, _ in describe_objects("memory://bucket")][-1] == "data2/another.txt"


def test_digest_changes_with_the_url_and_with_each_object(tmp_path):
    def write(name, content, modified):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        os.utime(path, (modified, modified))

    digests = []
    for name, content, modified in (("x/a", "one", 1), ("x/b", "one", 1), ("x/a", "four", 1), ("x/a", "four", 2)):
        write(name, content, modified)
        digests.append(list_objects(f"file://{tmp_path}/x").digest)
        assert list_objects(f"file://{tmp_path}/x/").digest == digests[-1]
    (tmp_path / "x").rename(tmp_path / "y")
    digests.append(list_objects(f"file://{tmp_path}/y").digest)
    assert len(set(digests)) == 5


def test_what_is_empty_missing_or_single_is_refused(bucket, tmp_path):
    (bucket / "data" / "file").write_text("x")
    with raises_code("path-missing", "memory://bucket/elsewhere"):
        list_objects("memory://bucket/elsewhere")
    with raises_code("path-kind", "memory://bucket/data/file", "single object"):
        list_objects("memory://bucket/data/file")
    with raises_code("path-missing", f"file://{tmp_path}"):
        list_objects(f"file://{tmp_path}")
    with raises_code("path-missing", "nowhere"):
        list_objects(f"file://{tmp_path}/nowhere")
    for url in ("s3://", "file:///", "memory:///"):
        with raises_code("url-format"):
            list_objects(url)


@pytest.mark.parametrize("name", ["a/../../../escaped", "..", "a//b", "./a", "a\0b"])
def test_name_that_would_leave_the_copy_is_refused(memory, name):
    memory.store["/bucket/data/good"] = memory.store[f"/bucket/data/{name}"] = memory.open("/x", "wb")
    with raises_code("dataset-invalid", "memory://bucket/data"):
        list_objects("memory://bucket/data")


def test_object_below_another_object_is_refused(memory):
    memory.store["/bucket/data/a"] = memory.store["/bucket/data/a/b"] = memory.open("/x", "wb")
    with raises_code("dataset-invalid", "'a'"):
        list_objects("memory://bucket/data")


def test_links_are_refused_rather_than_left_out(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "file").write_text("x")
    (tmp_path / "x" / "link").symlink_to(tmp_path / "x")
    with raises_code("dataset-invalid", "'link'"):
        list_objects(f"file://{tmp_path}/x")


def test_version_is_the_best_entry_that_has_a_value():
    assert find_version({"size": 3, "mtime": 5.0, "ETag": '"abc"', "created": 7}) == '"abc"'
    assert find_version({"ETag": None, "etag": "", "LastModified": "monday", "mtime": 5.0}) == "monday"
    assert find_version({"created": 7}) == "7" and find_version({"size": 3}) == ""


def test_marks_of_folders_are_no_objects(memory):
    memory.store["/bucket/data/a.txt"] = memory.store["/bucket/data/empty/"] = memory.open("/x", "wb")
    [item] = list_objects("memory://bucket/data").objects
    assert item == StoredObject("a.txt", 0, item.version) and item.version
