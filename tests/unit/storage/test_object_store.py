import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from equipoise.config import TrainConfig
from equipoise.runs.folder import claim_run_folder, load_finished_run, require_writable
from equipoise.storage.atomic import (
    atomic_folder,
    download_folder,
    file_fingerprint,
    open_local_copy,
    read_json,
    write_json,
)
from equipoise.storage.object_store import RemotePath, open_filesystem, parse_location, write_timeout_options
from tests.support.errors import raises_code


def test_url_is_joined_and_split_like_a_path():
    path = parse_location("s3://bucket/runs/x")
    assert str(path / "a" / "b.json") == "s3://bucket/runs/x/a/b.json"
    assert (path.name, str(path.parent), str(path.with_name("y"))) == ("x", "s3://bucket/runs", "s3://bucket/runs/y")
    assert (path / "t.json").stem == "t"
    assert pickle.loads(pickle.dumps(path)) == path == path.absolute() == path.resolve()  # noqa: S301 # pickled here
    assert path.is_absolute() and f"{path}" == "s3://bucket/runs/x"
    for location in ("runs/x", "/runs/x", "file:///runs/x"):
        assert type(parse_location(location)) is type(Path("x"))
    assert parse_location("file:///runs/x") == Path("/runs/x")


def test_url_is_never_used_as_a_local_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for access in (os.fspath, open, os.mkdir):
        with pytest.raises(TypeError, match="behind a URL"):
            access(RemotePath("s3://bucket/x"))
    with pytest.raises(OSError, match="behind a URL"):
        RemotePath("s3://bucket/x").stat()
    assert list(tmp_path.iterdir()) == []


def test_written_files_are_listed_and_read_back(bucket):
    path = bucket / "runs" / "x"
    assert not path.exists() and list(path.glob("*")) == []
    with pytest.raises(FileNotFoundError):
        (path / "a.json").read_bytes()
    with pytest.raises(FileNotFoundError):
        list(path.iterdir())
    write_json(path / "a.json", {"a": [1, None, "é"]})
    (path / "b" / "c.json").write_text("x")
    assert read_json(path / "a.json") == {"a": [1, None, "é"]}
    assert path.is_dir() and not path.is_file() and (path / "a.json").is_file()
    assert [child.name for child in path.iterdir()] == ["a.json", "b"]
    assert [str(child) for child in path.glob("*.json")] == ["memory://bucket/runs/x/a.json"]
    with open_local_copy(path / "a.json") as copy:
        assert copy.name == "a.json" and read_json(copy) == {"a": [1, None, "é"]}
    assert not copy.exists()
    (path / "a.json").unlink()
    (path / "a.json").unlink(missing_ok=True)
    assert not (path / "a.json").exists()


def test_folder_appears_completely_with_its_last_file_last_or_not_at_all(bucket):
    filesystem = bucket.filesystem
    with pytest.raises(KeyError), atomic_folder(bucket / "b") as temporary:
        (temporary / "weights").touch()
        raise KeyError
    assert not (bucket / "b").exists()
    with atomic_folder(bucket / "b", last_file="bundle.json") as temporary:
        for name in ("bundle.json", "weights", "card.md"):
            (temporary / name).write_text(name)
    created_times = {name: filesystem.created(f"/bucket/b/{name}") for name in ("card.md", "weights", "bundle.json")}
    assert list(created_times.values()) == sorted(created_times.values())
    with raises_code("path-exists"), atomic_folder(bucket / "b"):
        pass
    copy = download_folder(str(bucket / "b"))
    assert sorted(file.name for file in copy.iterdir()) == ["bundle.json", "card.md", "weights"]


def test_copy_of_a_remote_folder_is_removed_when_the_process_ends():
    program = """
from equipoise.storage.atomic import download_folder
from equipoise.storage.object_store import parse_location
(parse_location("memory://bucket/b") / "weights").write_text("x")
copy = download_folder("memory://bucket/b")
assert (copy / "weights").read_text() == "x"
print(copy)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not Path(result.stdout.strip()).exists()


def test_timeout_of_a_write_grows_with_its_size(bucket):
    asynchronous = open_filesystem("s3://bucket/x")[0]
    seconds = [write_timeout_options(asynchronous, size)["timeout"] for size in (0, 1_000_000, 60_000_000)]
    assert seconds == [15, 16, 75]
    assert write_timeout_options(bucket.filesystem, 1) == {}


def test_store_without_its_package_or_of_no_kind_is_refused():
    with raises_code("store-unsupported", "cannot open gs://bucket/x", "pip install the package for gs://"):
        open_filesystem("gs://bucket/x")


def test_run_claims_its_folder_and_refuses_that_of_another(bucket):
    out, config = bucket / "run", TrainConfig(workload="digits")
    require_writable(out)
    assert list(bucket.filesystem.find("/bucket")) == []
    with claim_run_folder(out, config):
        assert load_finished_run(out, config) is None
    with raises_code("run-mismatch", "seed is 0, requested 1"):
        load_finished_run(out, TrainConfig(workload="digits", seed=1))
    (bucket / "other" / "file").touch()
    with raises_code("path-in-use"):
        load_finished_run(bucket / "other", config)


def test_fingerprint_changes_with_the_content(bucket):
    path = bucket / "bundle.json"
    assert file_fingerprint(str(path)) is None
    path.write_text("one")
    before = file_fingerprint(str(path))
    assert before is not None and file_fingerprint(str(path)) == before
    path.write_text("two")
    assert file_fingerprint(str(path)) not in (before, None)
