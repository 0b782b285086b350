"""The command jobs.captures: listing captures, labels from a table, and export of a folder to train on."""

import json
import os
import stat
import sys

import numpy as np
import pytest

from equipoise.bundle.folder import REQUIRED_FILES, write_manifest
from equipoise.captures.capture import CapturedRequest
from equipoise.captures.store import CaptureStore
from equipoise.storage.atomic import atomic_folder
from equipoise.workloads.image_folder import find_labelled_images
from jobs.captures import main
from tests.support.manifests import build_manifest


@pytest.fixture
def stored_captures(tmp_path):
    """Store three captures in each pool; return their folder and their ids, the most useful to label first."""
    store = CaptureStore(str(tmp_path / "kept"))
    for index in range(6):
        picture = np.full((1, 16, 16), index, np.uint8)
        scores = {"3": 0.75, "8": 0.25}
        pool = ("drift", "usual")[index % 2]
        store.offer(CapturedRequest(picture=picture, model="m", version="v", label="3", scores=scores, pool=pool))
    return tmp_path / "kept", [capture.id for capture in store.list_captures()]


@pytest.fixture
def run_captures(monkeypatch, capsys):
    """Return a function that runs the command and returns its exit status, stdout and stderr."""

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["captured", *map(str, arguments)])
        return main(), *capsys.readouterr()

    return run_main


def write_label_table(path, rows):
    path.write_text("id,label\n" + "".join(f"{capture_id},{label}\n" for capture_id, label in rows))
    return path


def write_empty_bundle(out, classes):
    """Write a bundle whose files are empty except for bundle.json."""
    with atomic_folder(out) as folder:
        for name in REQUIRED_FILES:
            (folder / name).write_bytes(b"")
        write_manifest(folder, build_manifest(classes=classes))
    return out


def test_captures_are_counted_and_listed_the_most_useful_first(run_captures, stored_captures, tmp_path):
    folder, ids = stored_captures
    status, stdout, _ = run_captures("--capture-dir", folder)
    assert status == 0 and stdout.splitlines()[:2] == ["drift: 3 to label, 0 labelled", "usual: 3 to label, 0 labelled"]
    assert [line.split()[0] for line in stdout.splitlines()[2:]] == ids and "3 0.75" in stdout
    (folder / "notes.txt").write_text("")
    CaptureStore(str(folder)).label_capture(ids[0], "8", ["8"])
    assert (
        "labelled 8" in run_captures("--capture-dir", folder)[1]
        and "not complete captures: 1" in run_captures("--capture-dir", folder)[1]
    )
    listing = json.loads(run_captures("--capture-dir", folder, "--json")[1])
    assert listing["captures"]["drift"] == {"labelled": 1, "unlabelled": 2} and listing["skipped"] == 1
    assert [row["id"] for row in listing["first"]] == [*ids[1:], ids[0]]


def test_labelled_captures_are_exported_as_an_image_folder(run_captures, stored_captures, tmp_path):
    folder, ids = stored_captures
    table = write_label_table(tmp_path / "labels.csv", [(ids[0], "3"), (ids[1], "8"), (ids[2], "8")])
    status, stdout, _ = run_captures("--capture-dir", folder, "--labels", table, "--out", tmp_path / "out")
    assert (status, stdout) == (0, f"3 labelled\n{tmp_path}/out: 3 images (1 3, 2 8)\n")
    names, paths, _ = find_labelled_images(tmp_path / "out")
    assert names == ["3", "8"] and {path.stem for path in paths} == set(ids[:3])
    status, stdout, _ = run_captures("--capture-dir", folder, "--out", tmp_path / "more", "--json")
    assert json.loads(stdout)["exported"] == {"3": 1, "8": 2}


def test_labels_may_be_any_class_of_the_given_bundle(run_captures, stored_captures, tmp_path):
    folder, ids = stored_captures
    digits = write_empty_bundle(tmp_path / "digits", [str(digit) for digit in range(10)])
    table = write_label_table(tmp_path / "labels.csv", [(ids[0], "5")])
    assert run_captures("--capture-dir", folder, "--labels", table)[0] == 2
    status, stdout, _ = run_captures(
        "--capture-dir", folder, "--labels", table, "--bundle", digits, "--out", tmp_path / "out"
    )
    assert status == 0 and "1 labelled" in stdout and (tmp_path / "out" / "5" / f"{ids[0]}.png").is_file()


def test_invalid_arguments_give_one_sentence_and_exit_status_2(run_captures, stored_captures, tmp_path):
    folder, ids = stored_captures
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.csv").write_bytes("id,label\né".encode("latin-1"))
    invalid_table = write_label_table(tmp_path / "wrong.csv", [(ids[0], "3"), (ids[1], "5")])
    for arguments, message in (
        (("--capture-dir", tmp_path / "none"), "it is not a folder; give the one where the service keeps captures"),
        (("--capture-dir", "nonsense://x"), "nonsense:// is not a supported object store: give s3://"),
        (
            ("--capture-dir", folder, "--labels", invalid_table),
            f"{invalid_table}: row 3: there is no class '5'; there are: 3, 8",
        ),
        (("--capture-dir", folder, "--labels", tmp_path / "no.csv"), "no.csv: No such file or directory"),
        (("--capture-dir", folder, "--labels", tmp_path / "latin.csv"), "is not UTF-8 text"),
        (("--capture-dir", tmp_path / "empty", "--labels", invalid_table), "cannot label captures: "),
        (("--capture-dir", folder, "--labels", invalid_table, "--bundle", tmp_path), "is not a bundle"),
        (("--capture-dir", folder, "--out", tmp_path / "out"), "is labelled: there is nothing to export"),
    ):
        status, stdout, stderr = run_captures(*arguments)
        assert (status, stdout) == (2, "") and message in stderr and len(stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists() and "1 labelled" not in run_captures("--capture-dir", folder)[1]


def test_export_never_overwrites_a_folder(run_captures, stored_captures, tmp_path):
    folder, ids = stored_captures
    CaptureStore(str(folder)).label_capture(ids[0], "8", ["8"])
    status, stdout, stderr = run_captures("--capture-dir", folder, "--out", tmp_path)
    assert (status, stdout) == (2, "") and stderr.endswith("[path-exists]\n")


def test_labels_are_read_from_a_file_alone(run_captures, stored_captures, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    labels = [tmp_path / "pipe"]
    if os.geteuid() == 0:  # a device without end, as /dev/zero
        os.mknod(tmp_path / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
        labels.append(tmp_path / "zero")
    for path in labels:
        status, _, stderr = run_captures("--capture-dir", stored_captures[0], "--labels", path)
        assert status == 2 and str(path) in stderr and stderr.endswith("[path-kind]\n")


def test_no_label_is_given_if_the_export_cannot_be_written(run_captures, stored_captures, tmp_path):
    folder, ids = stored_captures
    table = write_label_table(tmp_path / "labels.csv", [(ids[0], "3")])
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nothing")
    for out, code in ((tmp_path, "path-exists"), (tmp_path / "file" / "x", "path-kind")):
        status, _, stderr = run_captures("--capture-dir", folder, "--labels", table, "--out", out)
        assert status == 2 and stderr.endswith(f"[{code}]\n")
    assert run_captures("--capture-dir", folder, "--labels", table, "--out", tmp_path / "dangling")[0] == 2
    assert not any(capture.label_given for capture in CaptureStore(str(folder)).list_captures())


def test_listing_shows_no_control_characters_and_json_is_ascii(run_captures, tmp_path):
    store, label = CaptureStore(str(tmp_path / "kept")), "caf\xe9\x1b[31m\n"
    picture = np.zeros((1, 16, 16), np.uint8)
    store.offer(
        CapturedRequest(picture=picture, model="m", version="v", label=label, scores={label: 1.0}, pool="usual")
    )
    _, stdout, _ = run_captures("--capture-dir", tmp_path / "kept")
    assert "caf\xe9" + r"\x1b[31m\n 1.00" in stdout
    _, stdout, _ = run_captures("--capture-dir", tmp_path / "kept", "--json")
    assert stdout.isascii() and json.loads(stdout)["first"][0]["label"] == label
