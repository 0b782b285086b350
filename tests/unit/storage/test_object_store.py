import os
import pickle
from pathlib import Path

import pytest

from equipoise.config import Trial
from equipoise.runs import folder as runs
from equipoise.storage import atomic as store
from equipoise.storage import object_store as url
from equipoise.storage.object_store import Away, Url, patiently


def test_a_url_is_put_together_and_taken_apart_as_a_path_is():
    path = url.place("s3://bucket/runs/x")
    assert str(path / "a" / "b.json") == "s3://bucket/runs/x/a/b.json"
    assert (path.name, str(path.parent), str(path.with_name("y"))) == ("x", "s3://bucket/runs", "s3://bucket/runs/y")
    assert (path / "t.json").stem == "t"
    assert pickle.loads(pickle.dumps(path)) == path == path.absolute() == path.resolve()  # noqa: S301 # our own
    assert path.is_absolute() and f"{path}" == "s3://bucket/runs/x"
    for local in ("runs/x", "/runs/x", "file:///runs/x"):
        assert type(url.place(local)) is type(Path("x"))
    assert url.place("file:///runs/x") == Path("/runs/x")


def test_a_url_is_never_taken_for_a_file_of_this_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for touch in (os.fspath, open, os.mkdir):
        with pytest.raises(TypeError, match="behind a URL"):
            touch(Url("s3://bucket/x"))
    with pytest.raises(OSError, match="behind a URL"):
        Url("s3://bucket/x").stat()
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read(bucket):
    path = bucket / "runs" / "x"
    assert not path.exists() and list(path.glob("*")) == []
    with pytest.raises(FileNotFoundError):
        (path / "a.json").read_bytes()
    with pytest.raises(FileNotFoundError):
        list(path.iterdir())
    store.write_json(path / "a.json", {"a": [1, None, "é"]})
    (path / "b" / "c.json").write_text("x")
    assert store.read_json(path / "a.json") == {"a": [1, None, "é"]}
    assert path.is_dir() and not path.is_file() and (path / "a.json").is_file()
    assert [one.name for one in path.iterdir()] == ["a.json", "b"]
    assert [str(one) for one in path.glob("*.json")] == ["memory://bucket/runs/x/a.json"]
    with store.fetched(path / "a.json") as copy:
        assert copy.name == "a.json" and store.read_json(copy) == {"a": [1, None, "é"]}
    assert not copy.exists()
    (path / "a.json").unlink()
    (path / "a.json").unlink(missing_ok=True)
    assert not (path / "a.json").exists()


def test_a_folder_is_there_at_once_its_last_file_last_or_not_at_all(bucket):
    files = bucket.files
    with pytest.raises(KeyError), store.folder(bucket / "b") as temporary:
        (temporary / "weights").touch()
        raise KeyError
    assert not (bucket / "b").exists()
    with store.folder(bucket / "b", last="bundle.json") as temporary:
        for name in ("bundle.json", "weights", "card.md"):
            (temporary / name).write_text(name)
    born = {name: files.created(f"/bucket/b/{name}") for name in ("card.md", "weights", "bundle.json")}
    assert list(born.values()) == sorted(born.values())
    with pytest.raises(ValueError, match="exists already"), store.folder(bucket / "b"):
        pass
    copy = store.local(str(bucket / "b"))
    assert sorted(one.name for one in copy.iterdir()) == ["bundle.json", "card.md", "weights"]


def test_a_run_claims_its_place_and_refuses_that_of_another(bucket):
    out, trial = bucket / "run", Trial(workload="digits")
    runs.require_writable(out)
    assert list(bucket.files.find("/bucket")) == []
    with runs.claimed(out, trial):
        assert runs.finished(out, trial) is None
    with pytest.raises(ValueError, match=r"seed is 0, asked 1"):
        runs.finished(out, Trial(workload="digits", seed=1))
    (bucket / "other" / "file").touch()
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        runs.finished(bucket / "other", trial)


WITH_PASSWORDS = (
    *("s3://name:secret@bucket/x", "s3://name:sec/secret@bucket/x", "s3://secret@bucket/x"),
    *("s3:/name:secret@bucket/x", "s3:name:secret@bucket/x", "s3://%6eame:secret%40bucket/x"),
    *("name:secret@s3://bucket/x", "file://name:secret@host/x", "abfs://name:secret@box/x", "ftp://name:secret@host/x"),
)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("s3:/bucket/x", "is no URL: two slashes"),
        ("gs:bucket/x", "is no URL: two slashes"),
        ("s4://bucket/x", "s4:// is no object store"),
        ("ftp://bucket/x", "ftp:// is no object store"),
        ("file://host/x", "is no file of this machine"),
        ("s3://bucket/\udcff", "signs that cannot be written"),
        ("runs/\x1b[31m", "signs that cannot be written"),
        ("simplecache::s3://bucket/x", "is a chain of stores"),
        *((text, "has a password in it") for text in WITH_PASSWORDS),
        ("s3://bucket/x?X-Amz-Signature=secret", "has a query, which may be a signature"),
        ("s3://", "names no bucket"),
    ],
)
def test_what_is_no_url_of_a_store_is_refused_without_its_secrets(text, sentence):
    with pytest.raises(ValueError, match=sentence) as found:
        url.require_plain(text)
    assert "secret" not in str(found.value)
    with pytest.raises(ValueError, match=sentence):
        url.require_plain(str(url.place(text)))


@pytest.mark.parametrize("text", ["runs/x", "/runs/x", "s3", "s3://bucket/a@b:c", "abfs://box@account/x", "None"])
def test_what_is_plain_is_not_refused(text):
    url.require_plain(text)


@pytest.mark.parametrize("text", ["soon", "nan", "inf", "-1", ""])
def test_patience_that_is_no_time_is_named(monkeypatch, text):
    monkeypatch.setenv(url.PATIENCE, text)
    with pytest.raises(ValueError, match=f"{url.PATIENCE} must be a number of seconds, got '{text}'"):
        patiently(lambda: 1, "s3://bucket/x")


def test_a_store_that_is_away_for_a_moment_is_waited_for(monkeypatch, caplog):
    monkeypatch.setenv(url.PATIENCE, "5")
    answers = iter([OSError("reset by http://name:secret@host/x?token=secret"), TimeoutError("slow"), None])

    def action():
        if answer := next(answers):
            raise answer
        return "found"

    assert patiently(action, "s3://bucket/x") == "found"
    assert len(caplog.messages) == 2 and "secret" not in caplog.text
    assert "does not answer" in caplog.messages[0] and "answers again" in caplog.messages[1]


def test_waiting_has_a_bound_and_what_no_waiting_mends_is_said_at_once(monkeypatch):
    def raising(error):
        def action():
            raise error

        return action

    monkeypatch.setenv(url.PATIENCE, "0.3")
    with pytest.raises(Away, match="does not answer"):
        patiently(raising(OSError("gone")), "s3://bucket/x")
    monkeypatch.setenv(url.PATIENCE, "600")
    with pytest.raises(ValueError, match="cannot be used"):
        patiently(raising(PermissionError("Access Denied")), "s3://bucket/x")
    with pytest.raises(FileNotFoundError):
        patiently(raising(FileNotFoundError("no key")), "s3://bucket/x")
    with url.at_once(), pytest.raises(Away):
        patiently(raising(OSError("gone")), "s3://bucket/x")


def test_a_stamp_is_another_once_the_content_is(bucket):
    path = bucket / "bundle.json"
    assert store.stamp(str(path)) is None
    path.write_text("one")
    before = store.stamp(str(path))
    assert before is not None and store.stamp(str(path)) == before
    path.write_text("two")
    assert store.stamp(str(path)) not in (before, None)
