import os
import pickle
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
from equipoise.storage.object_store import RemotePath, parse_location


def test_a_url_is_put_together_and_taken_apart_as_a_path_is():
    path = parse_location("s3://bucket/runs/x")
    assert str(path / "a" / "b.json") == "s3://bucket/runs/x/a/b.json"
    assert (path.name, str(path.parent), str(path.with_name("y"))) == ("x", "s3://bucket/runs", "s3://bucket/runs/y")
    assert (path / "t.json").stem == "t"
    assert pickle.loads(pickle.dumps(path)) == path == path.absolute() == path.resolve()  # noqa: S301 # our own
    assert path.is_absolute() and f"{path}" == "s3://bucket/runs/x"
    for local in ("runs/x", "/runs/x", "file:///runs/x"):
        assert type(parse_location(local)) is type(Path("x"))
    assert parse_location("file:///runs/x") == Path("/runs/x")


def test_a_url_is_never_taken_for_a_file_of_this_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for touch in (os.fspath, open, os.mkdir):
        with pytest.raises(TypeError, match="behind a URL"):
            touch(RemotePath("s3://bucket/x"))
    with pytest.raises(OSError, match="behind a URL"):
        RemotePath("s3://bucket/x").stat()
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read(bucket):
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
    assert [one.name for one in path.iterdir()] == ["a.json", "b"]
    assert [str(one) for one in path.glob("*.json")] == ["memory://bucket/runs/x/a.json"]
    with open_local_copy(path / "a.json") as copy:
        assert copy.name == "a.json" and read_json(copy) == {"a": [1, None, "é"]}
    assert not copy.exists()
    (path / "a.json").unlink()
    (path / "a.json").unlink(missing_ok=True)
    assert not (path / "a.json").exists()


def test_a_folder_is_there_at_once_its_last_file_last_or_not_at_all(bucket):
    files = bucket.filesystem
    with pytest.raises(KeyError), atomic_folder(bucket / "b") as temporary:
        (temporary / "weights").touch()
        raise KeyError
    assert not (bucket / "b").exists()
    with atomic_folder(bucket / "b", last_file="bundle.json") as temporary:
        for name in ("bundle.json", "weights", "card.md"):
            (temporary / name).write_text(name)
    born = {name: files.created(f"/bucket/b/{name}") for name in ("card.md", "weights", "bundle.json")}
    assert list(born.values()) == sorted(born.values())
    with pytest.raises(ValueError, match="exists already"), atomic_folder(bucket / "b"):
        pass
    copy = download_folder(str(bucket / "b"))
    assert sorted(one.name for one in copy.iterdir()) == ["bundle.json", "card.md", "weights"]


def test_a_run_claims_its_place_and_refuses_that_of_another(bucket):
    out, trial = bucket / "run", TrainConfig(workload="digits")
    require_writable(out)
    assert list(bucket.filesystem.find("/bucket")) == []
    with claim_run_folder(out, trial):
        assert load_finished_run(out, trial) is None
    with pytest.raises(ValueError, match=r"seed is 0, requested 1"):
        load_finished_run(out, TrainConfig(workload="digits", seed=1))
    (bucket / "other" / "file").touch()
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        load_finished_run(bucket / "other", trial)


def test_a_stamp_is_another_once_the_content_is(bucket):
    path = bucket / "bundle.json"
    assert file_fingerprint(str(path)) is None
    path.write_text("one")
    before = file_fingerprint(str(path))
    assert before is not None and file_fingerprint(str(path)) == before
    path.write_text("two")
    assert file_fingerprint(str(path)) not in (before, None)
