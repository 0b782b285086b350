"""Labels on disk: whole or not at all, and nobody's work is overwritten."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.boxes.box import LabelledBox
from equipoise.errors import EquipoiseError
from equipoise.labels.picture_labels import MAX_NAME_CHARACTERS, PictureLabels, clip_box
from equipoise.labels.store import LabelConflict, LabelStore
from tests.support.errors import raises_code
from tests.support.ray_cluster import ROOT

BOX = LabelledBox(label="cola", x=1.5, y=2.0, width=10.25, height=20.0)
NUM_SAVES = 40  # of each process that saves at the same time


def build_labels(picture="a/1.jpg", **changes):
    given = {"picture": picture, "width": 100, "height": 80, "boxes": (BOX,), "author": "anna", "at": 1e9}
    return PictureLabels(**given | changes)


def test_saved_labels_are_read_back(tmp_path):
    store = LabelStore(tmp_path)
    saved = store.save_labels(build_labels(), 0)
    assert saved == replace(build_labels(), revision=1) == store.read_labels("a/1.jpg")
    store.save_labels(build_labels(picture="b.png", boxes=None, label="crisps"), 0)
    assert store.list_labelled() == {"a/1.jpg", "b.png"}
    assert [labels.kind for labels in store.read_all()[0]] == ["boxes", "class"]
    assert json.loads((tmp_path / "a" / "1.jpg.json").read_text())["boxes"] == [
        {"label": "cola", "x": 1.5, "y": 2.0, "width": 10.25, "height": 20.0}
    ]


def test_picture_without_labels_has_none(tmp_path):
    assert LabelStore(tmp_path / "new").read_labels("a.png") is None
    assert LabelStore(tmp_path / "new").list_labelled() == set()


@given(
    st.lists(
        st.tuples(*(st.floats(0, 1) for _ in range(4)), st.sampled_from(["cola", "eau gazeuse", "水"])).map(
            lambda parts: (parts[0] * 50, parts[1] * 40, 0.01 + parts[2] * 49, 0.01 + parts[3] * 39, parts[4])
        ),
        max_size=5,
    )
)
def test_boxes_survive_json_exactly(rows):
    boxes = tuple(LabelledBox(label=name, x=x, y=y, width=w, height=h) for x, y, w, h, name in rows)
    labels = build_labels(boxes=boxes)
    assert PictureLabels.from_json(json.loads(json.dumps(labels.to_json())), "it") == labels


@pytest.mark.parametrize("base_revision", [0, 2])
def test_save_that_does_not_know_the_last_one_is_refused(tmp_path, base_revision):
    store = LabelStore(tmp_path)
    store.save_labels(build_labels(), 0)
    with pytest.raises(LabelConflict) as refusal:
        store.save_labels(build_labels(author="ben", boxes=()), base_revision)
    assert refusal.value.code == "label-conflict" and refusal.value.current.author == "anna"
    assert store.read_labels("a/1.jpg") == replace(build_labels(), revision=1)
    assert store.save_labels(build_labels(author="ben", boxes=()), 1).revision == 2


def test_change_of_removed_labels_is_refused(tmp_path):
    with raises_code("label-conflict"):
        LabelStore(tmp_path).save_labels(build_labels(), 3)


@pytest.mark.parametrize(
    "name", ["../x.png", "/etc/x.png", ".hidden/x.png", "", "a/../../x.png", "a\0.png", "x" * 251, "a/" * 600]
)
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    with raises_code("path-kind"):
        LabelStore(tmp_path).read_labels(name)


@pytest.mark.parametrize(
    "changes",
    [
        {"boxes": (replace(BOX, x=-5.0),)},
        {"boxes": (replace(BOX, width=0.0),)},
        {"boxes": (replace(BOX, width=200.0),)},
        {"boxes": (replace(BOX, height=float("nan")),)},
        {"boxes": None},
        {"label": "cola"},
        {"author": "a\n"},
        {"width": 0},
        {"boxes": (BOX,) * 1001},
    ],
)
def test_impossible_labels_are_refused(changes):
    with raises_code("labels-invalid"):
        build_labels(**changes)


def test_longest_name_of_an_author_is_taken():
    assert build_labels(author="a" * MAX_NAME_CHARACTERS).author
    with raises_code("labels-invalid"):
        build_labels(author="a" * (MAX_NAME_CHARACTERS + 1))


def test_box_is_clipped_to_its_picture():
    assert clip_box(replace(BOX, x=-2.0), 100, 80) == replace(BOX, x=0.0, width=8.25)
    assert clip_box(replace(BOX, x=120.0), 100, 80) is None


def test_damaged_label_file_is_named_and_the_others_are_read(tmp_path):
    store = LabelStore(tmp_path)
    store.save_labels(build_labels(), 0)
    (tmp_path / "broken.png.json").write_text('{"picture": "broken.png", ')
    (tmp_path / "odd.png.json").write_text('{"picture": "odd.png", "width": 3}')
    labels, problems = store.read_all()
    assert [entry.picture for entry in labels] == ["a/1.jpg"]
    assert len(problems) == 2 and "broken.png.json" in problems[0] and "odd.png.json" in problems[1]


def test_classes_are_added_behind_each_other_and_the_kind_stays(tmp_path):
    store = LabelStore(tmp_path)
    assert store.read_classes() == (None, [])
    assert store.add_classes("boxes", ["cola", "crisps"]) == ["cola", "crisps"]
    assert store.add_classes("boxes", ["water", "cola"]) == ["cola", "crisps", "water"]
    assert store.read_classes() == ("boxes", ["cola", "crisps", "water"]) and store.list_labelled() == set()
    for kind, names, code in (("class", [], "option-conflict"), ("boxes", [" "], "class-unknown")):
        with pytest.raises(EquipoiseError) as refusal:
            store.add_classes(kind, names)
        assert refusal.value.code == code


COUNTING_PROGRAM = """
import sys
from pathlib import Path
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.store import LabelConflict, LabelStore
store, author, conflicts = LabelStore(Path(sys.argv[1])), sys.argv[2], 0
for number in range(int(sys.argv[3])):
    while True:
        stored = store.read_labels("a.png")
        text = (stored.label if stored else "") + author[0] if stored else author[0]
        try:
            store.save_labels(PictureLabels(picture="a.png", width=9, height=9, label=text, author=author),
                              stored.revision if stored else 0)
            break
        except LabelConflict:
            conflicts += 1
    print(number, flush=True)
"""


def start_saving(folder, author, count):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", COUNTING_PROGRAM, str(folder), author, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_no_save_of_two_processes_is_lost(tmp_path):
    processes = [start_saving(tmp_path, author, NUM_SAVES) for author in ("anna", "ben")]
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    stored = LabelStore(tmp_path).read_labels("a.png")
    assert stored.revision == 2 * NUM_SAVES
    assert (stored.label.count("a"), stored.label.count("b")) == (NUM_SAVES, NUM_SAVES)


def test_killed_process_leaves_the_last_save_whole_and_the_folder_unlocked(tmp_path):
    process = start_saving(tmp_path, "x", 90)
    for _ in range(12):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    store = LabelStore(tmp_path)
    stored = store.read_labels("a.png")
    assert stored.revision >= 12 and stored.label == "x" * stored.revision
    assert store.save_labels(replace(stored, author="next"), stored.revision).revision == stored.revision + 1
    assert store.list_labelled() == {"a.png"}
