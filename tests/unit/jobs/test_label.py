"""`equipoise label` as a command: it serves until it is stopped, exports, and refuses mistakes in one sentence."""

import os
import signal
import subprocess
import sys

import pytest

from equipoise.labels.store import LabelStore
from jobs.cluster.processes import find_free_ports
from jobs.label import LabelOptions, split_names
from tests.support.errors import raises_code
from tests.support.labelling import LabellingClient, write_pictures
from tests.support.ray_cluster import ROOT


def run_label(folder, *arguments):
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jobs.label",
            "--images",
            str(folder / "photos"),
            "--out",
            str(folder / "labels"),
            *arguments,
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_page_is_served_until_sigterm_and_labels_are_exported(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    (port,) = find_free_ports(1)
    process = run_label(tmp_path, "--port", str(port), "--classes", "cola, crisps", "water")
    try:
        assert f"http://127.0.0.1:{port}/" in process.stdout.readline()
        client = LabellingClient(port)
        opened = client.next("anna")
        box = {"label": "crisps", "x": 1, "y": 2, "width": 3, "height": 4}
        assert client.save("anna", opened, boxes=[box], author="Anna")[0] == 200
        assert client.get("/queue")[1]["classes"] == ["cola", "crisps", "water"]
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143, process.stderr.read()
    process.communicate()
    assert LabelStore(tmp_path / "labels").read_labels("000.png").author == "Anna"
    exported = run_label(tmp_path, "--export", "yolo", "--export-to", str(tmp_path / "dataset"))
    out, err = exported.communicate(timeout=60)
    assert exported.returncode == 0, err
    assert "1 picture (1 crisps)" in out and "001.png" in out
    assert (tmp_path / "dataset" / "000.txt").read_text().startswith("1 ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--port", "0"], "option-range"),
        (["--export", "coco"], "option-missing"),
        (["--service", "ftp://host"], "url-format"),
        (["--host", "0.0.0.0"], "option-missing"),  # noqa: S104
        (["--kind", "class"], "option-conflict"),
    ],
)
@pytest.mark.slow
def test_mistakes_are_refused_in_one_sentence(tmp_path, arguments, code):
    write_pictures(tmp_path / "photos", 1)
    LabelStore(tmp_path / "labels").add_classes("boxes", ["cola"])
    process = run_label(tmp_path, *arguments)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2 and err.count("\n") == 1 and f"[{code}]" in err


def test_export_among_the_pictures_is_refused(tmp_path):
    write_pictures(tmp_path, 1)
    options = {"images": tmp_path, "out": tmp_path / "labels", "export": "coco"}
    with raises_code("option-conflict", "would then be there twice"):
        LabelOptions(**options, export_to=tmp_path / "labels" / "coco").validate()
    LabelOptions(**options, export_to=tmp_path.parent / "coco").validate()


def test_class_names_may_be_separated_by_commas():
    assert split_names(("cola, crisps", "eau gazeuse", ",")) == ["cola", "crisps", "eau gazeuse"]
