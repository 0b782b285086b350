"""Captures of a service on the labelling page: its answers are the guesses, and those since an alarm come first."""

import pytest

from equipoise.captures.store import CaptureStore
from equipoise.captures.traffic import TrafficSample
from equipoise.labels.captured_guesses import CapturedGuesser
from equipoise.labels.pictures import list_pictures
from tests.support.boxed_captures import capture_shelf
from tests.support.captures import CLASSES as CLASSIFIED
from tests.support.captures import build_request
from tests.support.labelling import CLASSES, serve_labelling, write_pictures


def list_sides(box):
    return [box["x"], box["y"], box["width"], box["height"]]


@pytest.fixture
def store(tmp_path):
    (tmp_path / "kept").mkdir()
    return CaptureStore(str(tmp_path / "kept"), 12)


def serve_captures(tmp_path, **options):
    return serve_labelling(tmp_path, images=tmp_path / "kept", **options)


def test_answer_of_the_service_is_the_guess_in_pixels_of_what_people_see(store, tmp_path):
    _, box = capture_shelf(store)
    with serve_captures(tmp_path, classes=()) as client:
        opened = client.next("anna")
        assert (opened["width"], opened["height"]) == (120, 90)
        (guess,) = opened["guess"]["boxes"]
        assert guess["label"] == box.label and guess["score"] == pytest.approx(0.8)
        assert list_sides(guess) == pytest.approx([box.x, box.y, box.width, box.height], abs=0.1)
        assert client.get("/queue")[1]["classes"] == [*CLASSES]  # in the order of the model
        assert (
            client.save("anna", opened, boxes=[{"label": box.label, "x": 0, "y": 0, "width": 9, "height": 9}])[0] == 200
        )


def test_captures_since_an_alarm_come_first_and_the_least_certain_of_them_before_others(store, tmp_path):
    usual, _ = capture_shelf(store, pool="usual", score=0.2)
    sure, _ = capture_shelf(store, score=0.95)
    unsure, _ = capture_shelf(store, score=0.6)
    with serve_captures(tmp_path, guess_ahead=False) as client:
        for name in list_pictures(tmp_path / "kept"):
            client.post("/open", {"holder": "robot", "picture": name})
        client.post("/release", {"holder": "robot"})
        order = client.get("/queue")[1]["pictures"]
    assert [name.rpartition("-")[2][:16] for name in order] == [unsure.id, sure.id, usual.id]


def test_opened_capture_stays_while_others_come(store, tmp_path):
    first, _ = capture_shelf(store, score=1.0)
    with serve_captures(tmp_path) as client:
        opened = client.next("anna")
        for number in range(60):
            store.offer(build_request(0.1, seed=number, pool="drift"))
        assert first.id in {capture.id for capture in store.list_captures(limit=None)}
        assert client.save("anna", opened, boxes=[])[0] == 200


def test_samples_of_the_traffic_are_not_there_to_be_labelled(store, tmp_path):
    capture_shelf(store)
    for since_alarm in (True, False):
        TrafficSample(store.location, "v1", since_alarm).offer(build_request(is_uniform=True, side=8))
    write_pictures(tmp_path / "kept" / "traffic-photos", 1)  # a folder of somebody's own
    names = list_pictures(tmp_path / "kept")
    assert len(names) == 2 and "traffic-photos/000.png" in names
    assert len(list((tmp_path / "kept").rglob("*.png"))) == 4


def test_classes_of_captures_are_guesses_too(tmp_path):
    store = CaptureStore(str(tmp_path / "kept"))
    store.offer(build_request(0.75, side=16))
    with serve_captures(tmp_path, kind="class", classes=()) as client:
        assert client.next("anna")["guess"] == {"label": "ant", "score": 0.75}
        assert client.get("/queue")[1]["classes"] == CLASSIFIED


def test_picture_that_is_no_capture_has_no_guess(store, tmp_path):
    write_pictures(tmp_path / "kept", 1)
    assert CapturedGuesser()(tmp_path / "kept" / "000.png") is None
    capture, _ = capture_shelf(store)
    (metadata_file,) = (tmp_path / "kept").glob(f"*{capture.id}.json")
    metadata_file.write_text("{")
    assert CapturedGuesser()(next((tmp_path / "kept").glob(f"*{capture.id}.png"))) is None
