"""jobs.captures as a user calls it: what there is, labels from a table, and a folder to train on."""

import json
import sys

import numpy as np
import pytest

from equipoise.bundle.manifest import REQUIRED_FILES, write_manifest
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.storage.atomic import atomic_folder
from equipoise.workloads.image_folder import find_labelled_images
from jobs.captures import main


@pytest.fixture
def kept(tmp_path):
    """Three captures of either pool, and their ids, the most useful to label first."""
    held = CaptureStore(str(tmp_path / "kept"))
    for place in range(6):
        picture = np.full((1, 16, 16), place, np.uint8)
        scores = {"3": 0.75, "8": 0.25}
        pool = ("drift", "usual")[place % 2]
        held.offer(CapturedRequest(picture=picture, model="m", version="v", label="3", scores=scores, pool=pool))
    return tmp_path / "kept", [one["id"] for one in held.list_captures()]


@pytest.fixture
def call(monkeypatch, capsys):
    def called(*words):
        monkeypatch.setattr(sys, "argv", ["captured", *map(str, words)])
        return main(), *capsys.readouterr()

    return called


def table(path, rows):
    path.write_text("id,label\n" + "".join(f"{one},{label}\n" for one, label in rows))
    return path


def sealed(out, classes):
    """A bundle of which only bundle.json is looked at."""
    facts = {"name": "x", "workload": "x", "classes": classes, "input": {}, "engine": {}, "metrics": {}}
    with atomic_folder(out) as folder:
        for name in REQUIRED_FILES:
            (folder / name).write_bytes(b"")
        write_manifest(folder, facts)
    return out


def test_without_options_it_lists_what_there_is(call, kept, tmp_path):
    place, ids = kept
    status, said, _ = call("--capture-dir", place)
    assert status == 0 and said.splitlines()[:2] == ["drift: 3 to label, 0 labelled", "usual: 3 to label, 0 labelled"]
    assert [line.split()[0] for line in said.splitlines()[2:]] == ids and "3 0.75" in said
    (place / "notes.txt").write_text("")
    CaptureStore(str(place)).label_capture(ids[0], "8", ["8"])
    assert (
        "labelled 8" in call("--capture-dir", place)[1]
        and "not complete captures: 1" in call("--capture-dir", place)[1]
    )
    found = json.loads(call("--capture-dir", place, "--json")[1])
    assert found["captures"]["drift"] == {"labelled": 1, "unlabelled": 2} and found["skipped"] == 1
    assert [one["id"] for one in found["first"]] == [*ids[1:], ids[0]]


def test_labels_and_the_folder_to_train_on(call, kept, tmp_path):
    place, ids = kept
    rows = table(tmp_path / "labels.csv", [(ids[0], "3"), (ids[1], "8"), (ids[2], "8")])
    status, said, _ = call("--capture-dir", place, "--labels", rows, "--out", tmp_path / "out")
    assert (status, said) == (0, f"3 labelled\n{tmp_path}/out: 3 images (1 3, 2 8)\n")
    names, paths, _ = find_labelled_images(tmp_path / "out")
    assert names == ["3", "8"] and {path.stem for path in paths} == set(ids[:3])
    status, said, _ = call("--capture-dir", place, "--out", tmp_path / "more", "--json")
    assert json.loads(said)["exported"] == {"3": 1, "8": 2}


def test_labels_are_the_bundles_classes_where_one_is_given(call, kept, tmp_path):
    place, ids = kept
    digits = sealed(tmp_path / "digits", [str(digit) for digit in range(10)])
    rows = table(tmp_path / "labels.csv", [(ids[0], "5")])
    assert call("--capture-dir", place, "--labels", rows)[0] == 2
    status, said, _ = call("--capture-dir", place, "--labels", rows, "--bundle", digits, "--out", tmp_path / "out")
    assert status == 0 and "1 labelled" in said and (tmp_path / "out" / "5" / f"{ids[0]}.png").is_file()


def test_what_cannot_be_is_one_sentence_and_exit_status_2(call, kept, tmp_path):
    place, ids = kept
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.csv").write_bytes("id,label\né".encode("latin-1"))
    wrong = table(tmp_path / "wrong.csv", [(ids[0], "3"), (ids[1], "5")])
    for words, sentence in (
        (("--capture-dir", tmp_path / "none"), "it is not a folder; give the one where the service keeps captures"),
        (("--capture-dir", "nonsense://x"), "nonsense:// is not a supported object store: give s3://"),
        (("--capture-dir", place, "--labels", wrong), "row 3: there is no class '5'; there are: 3, 8"),
        (("--capture-dir", place, "--labels", tmp_path / "no.csv"), "no.csv: No such file or directory"),
        (("--capture-dir", place, "--labels", tmp_path / "latin.csv"), "is not UTF-8 text"),
        (("--capture-dir", tmp_path / "empty", "--labels", wrong), "cannot label captures: "),
        (("--capture-dir", place, "--labels", wrong, "--bundle", tmp_path), "is not a bundle"),
        (("--capture-dir", place, "--out", tmp_path / "out"), "is labelled: there is nothing to export"),
    ):
        status, said, error = call(*words)
        assert (status, said) == (2, "") and sentence in error and len(error.splitlines()) == 1
    assert not (tmp_path / "out").exists() and "1 labelled" not in call("--capture-dir", place)[1]


def test_an_export_is_never_written_over(call, kept, tmp_path):
    place, ids = kept
    CaptureStore(str(place)).label_capture(ids[0], "8", ["8"])
    assert call("--capture-dir", place, "--out", tmp_path) == (
        2,
        "",
        f"error: cannot write {tmp_path}: it exists already; give another name, or remove it\n",
    )
