"""Captures of a service in a labelling session: their order, their guesses, and what a label does to them."""

import pytest

from equipoise.captures.store import CaptureStore
from equipoise.captures.traffic import TrafficSample
from equipoise.labels.capture_queue import list_capture_names, picture_name
from equipoise.labels.captured_labels import find_capture_id
from equipoise.labels.picture_labels import PictureLabels
from services.labelling.capture_session import open_capture_session
from tests.support.captures import CLASSES, build_request
from tests.support.errors import raises_code


@pytest.fixture
def session(tmp_path):
    store = CaptureStore(str(tmp_path / "captures"), seed=0)
    for number in range(4):
        assert store.offer(build_request(score=0.9, side=8, seed=number, pool="usual"))
    assert store.offer(build_request(score=0.9, side=8, seed=9, pool="drift"))
    return open_capture_session(tmp_path / "captures", tmp_path / "labels", "class", CLASSES)


def save(session, name, label, revision=0):
    return session.save_labels(PictureLabels(picture=name, width=8, height=8, label=label), revision)


def test_captures_since_an_alarm_come_first_and_then_those_with_large_keys(session):
    names = session.queue.list_names()
    assert [name.partition("-")[0] for name in names] == ["drift", *["usual"] * 4]
    keys = [name.split("-")[1] for name in names[1:]]
    assert keys == sorted(keys, reverse=True)
    assert session.queue.take_next("me") == names[0]


def test_the_answer_of_the_model_is_the_first_guess(session):
    opened = session.open_next("me", [])["document"]
    assert opened["guess"] == {"label": "ant", "score": 0.9}


def test_a_class_is_written_into_the_capture_whose_picture_keeps_its_name(session, tmp_path):
    name = session.queue.take_next("me")
    assert save(session, name, "bee").revision == 1
    (labelled,) = [capture for capture in session.store.captures.list_captures() if capture.label_given]
    assert (labelled.id, labelled.label_given) == (find_capture_id(name), "bee")
    assert session.queue.state().labelled == 1
    assert session.open_picture(name, "me")["label"] == "bee"
    assert save(session, name, "cat", revision=1).revision == 2
    assert session.store.captures.list_captures(limit=None)[-1].label_given == "cat"
    assert session.queue.take_next("me") != name


def test_a_capture_that_got_its_class_elsewhere_is_not_handed_out(session):
    first = session.queue.list_names()[0]
    session.store.captures.label_capture(find_capture_id(first), "cat", CLASSES)
    assert first in session.store.list_labelled()
    assert session.queue.take_next("me") != first


def test_uniform_samples_of_the_requests_are_not_labelled(session, tmp_path):
    TrafficSample(str(tmp_path / "captures"), "v1").offer(build_request(side=8, is_uniform=True))
    assert len(session.queue.list_pictures()) == 5


@pytest.mark.parametrize("name", ["../secret.png", "drift-1.png", "a/drift-0.5-0123456789abcdef.png", "x"])
def test_other_names_are_refused(session, name):
    with raises_code("path-missing"):
        session.queue.require_picture(name)


def test_a_capture_that_made_room_for_others_is_refused(session):
    name = session.queue.list_names()[0]
    session.queue.require_picture(name).unlink()
    with raises_code("path-missing"):
        session.queue.require_picture(name)


def test_a_capture_without_its_answer_has_no_guess(session):
    name = session.queue.list_names()[0]
    path = session.queue.require_picture(name)
    assert session.guesser(path).label == "ant"
    path.with_suffix(".json").write_text("{")
    assert session.find_guess(name) is None


def test_names_of_pictures_are_those_of_captures_without_a_label(session):
    names = list_capture_names(session.images)
    assert [picture_name(name) for name in names] == session.queue.list_pictures() == session.queue.list_names()
