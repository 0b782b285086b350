"""The queue: useful pictures first, each to one person, broken ones left out by name."""

import os
import threading

import pytest
from PIL import Image

from equipoise.errors import EquipoiseError
from equipoise.labels.guesses import Guess, parse_guess, read_guesses
from equipoise.labels.leases import LeaseBook
from equipoise.labels.picture_labels import PictureLabels
from equipoise.labels.queue import LabelQueue
from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import write_json
from tests.support.errors import raises_code
from tests.support.labelling import build_guess, write_pictures, write_shelf


class Clock:
    """Time that a test sets."""

    now = 1e9

    def __call__(self):
        return self.now


def build_queue(folder, guesses=None, clock=None):
    store = LabelStore(folder / "labels")
    return LabelQueue(folder / "photos", store, LeaseBook(store, 300.0, clock or Clock()), guesses or {})


def label_picture(queue, name, revision=0):
    copy = queue.page_copy(name)
    labels = PictureLabels(picture=name, width=copy.width, height=copy.height, boxes=())
    queue.store.save_labels(labels, revision)


def test_least_certain_picture_comes_first_and_labelled_ones_last(tmp_path):
    write_pictures(tmp_path / "photos", 4)
    guesses = {f"00{n}.png": parse_guess(build_guess(n, score), "it") for n, score in ((0, 0.9), (1, 0.3), (2, 0.6))}
    queue = build_queue(tmp_path, guesses)
    assert queue.list_names() == ["001.png", "002.png", "000.png", "003.png"]
    label_picture(queue, "001.png")
    assert queue.list_names() == ["002.png", "000.png", "003.png", "001.png"]
    assert queue.take_next("anna") == "002.png"


def test_two_people_get_different_pictures_until_nothing_is_left(tmp_path):
    write_pictures(tmp_path / "photos", 3)
    queue = build_queue(tmp_path)
    assert [queue.take_next(person) for person in ("anna", "ben", "anna", "cem", "dora")] == [
        "000.png",
        "001.png",
        "000.png",  # what they have already
        "002.png",
        None,
    ]
    state = queue.state("anna")
    assert (state.total, state.labelled, state.with_others) == (3, 0, 2)
    label_picture(queue, "000.png")
    assert queue.take_next("anna") is None and queue.state("anna").labelled == 1
    queue.leases.release_pictures("ben")
    assert queue.take_next("anna") == "001.png"


def test_lease_of_a_closed_page_expires_and_that_of_an_open_one_is_renewed(tmp_path):
    write_pictures(tmp_path / "photos", 1)
    clock = Clock()
    queue = build_queue(tmp_path, clock=clock)
    assert queue.take_next("anna") == "000.png"
    clock.now += 200
    assert queue.take_next("ben") is None and queue.leases.take_picture("000.png", "anna")
    clock.now += 200
    assert queue.take_next("ben") is None and not queue.leases.take_picture("000.png", "ben")
    clock.now += 101
    assert queue.leases.find_holder("000.png") is None
    assert queue.take_next("ben") == "000.png" and queue.leases.find_holder("000.png") == "ben"


def test_damaged_leases_count_as_none(tmp_path):
    write_pictures(tmp_path / "photos", 1)
    queue = build_queue(tmp_path)
    queue.take_next("anna")
    queue.leases.path.write_text('{"000.png": ["an')
    assert queue.take_next("ben") == "000.png"


def test_people_who_ask_at_the_same_time_get_different_pictures(tmp_path):
    names = write_pictures(tmp_path / "photos", 12)
    queue, taken = build_queue(tmp_path), []
    threads = [threading.Thread(target=lambda n=n: taken.append(queue.take_next(f"person {n}"))) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == names


def test_picture_whose_name_no_browser_can_ask_for_is_passed_over_and_named(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    (tmp_path / "photos" / "000.png").rename(tmp_path / "photos" / os.fsdecode(b"k\xfcche.png"))
    queue = build_queue(tmp_path)
    assert [queue.take_next("anna"), queue.take_next("ben")] == ["001.png", None]
    assert queue.state().broken == {"k\udcfcche.png": "its name is not UTF-8"}


def test_skipped_and_broken_pictures_are_passed_over_and_broken_ones_named(tmp_path):
    write_pictures(tmp_path / "photos", 3)
    (tmp_path / "photos" / "000.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing more")
    (tmp_path / "photos" / "notes.txt").write_text("not a picture")
    queue = build_queue(tmp_path)
    assert queue.take_next("anna", ["001.png"]) == "002.png"
    assert list(queue.state().broken) == ["000.png"] and queue.state().total == 3
    write_shelf(tmp_path / "photos" / "000.png", [])  # repaired
    assert queue.page_copy("000.png").width == 120 and queue.state().broken == {}


def test_link_to_nothing_is_passed_over_and_named(tmp_path):
    write_pictures(tmp_path / "photos", 2)
    (tmp_path / "photos" / "000.png").unlink()
    (tmp_path / "photos" / "000.png").symlink_to(tmp_path / "gone.png")
    queue = build_queue(tmp_path)
    assert queue.take_next("anna") == "001.png" and list(queue.state().broken) == ["000.png"]


@pytest.mark.parametrize("name", ["../secret.png", "notes.txt", "missing.png", "linked/secret.png", "photos"])
def test_only_pictures_of_the_folder_are_opened(tmp_path, name):
    write_pictures(tmp_path / "photos", 1)
    write_shelf(tmp_path / "secret.png", [])
    (tmp_path / "photos" / "notes.txt").write_text("not a picture")
    (tmp_path / "photos" / "linked").symlink_to(tmp_path)
    with pytest.raises(EquipoiseError) as refusal:
        build_queue(tmp_path).page_copy(name)
    assert refusal.value.code in ("path-missing", "path-kind")


def test_queue_of_five_thousand_pictures_opens_only_the_one_that_is_handed_out(tmp_path):
    (tmp_path / "photos").mkdir()
    for number in range(5000):
        (tmp_path / "photos" / f"{number:04}.jpg").touch()  # opening any of them would fail
    Image.new("RGB", (8, 8)).save(tmp_path / "photos" / "0000.jpg")
    queue = build_queue(tmp_path)
    assert len(queue.list_names()) == 5000
    assert queue.take_next("anna") == "0000.jpg" and queue.broken == {}


def test_guesses_are_read_from_coco_and_from_replies(tmp_path):
    annotation = {"image_id": 7, "category_id": 2, "bbox": [10, 20, 30, 40], "score": 0.5}
    coco = {"images": [{"id": 7, "file_name": "000.png"}, {"id": 8, "file_name": "001.png"}]}
    coco |= {"categories": [{"id": 2, "name": "cola"}], "annotations": [annotation]}
    write_json(tmp_path / "coco.json", coco)
    write_json(tmp_path / "replies.json", {"000.png": build_guess(0, 0.5), "001.png": {"boxes": []}})
    from_coco = read_guesses(tmp_path / "coco.json")
    assert from_coco == read_guesses(tmp_path / "replies.json")
    assert [guess.confidence for guess in from_coco.values()] == [0.5, 0.0]
    write_json(tmp_path / "classes.json", {"000.png": {"label": "cola", "scores": {"cola": 0.7, "water": 0.3}}})
    assert read_guesses(tmp_path / "classes.json") == {"000.png": Guess(label="cola", scores=(0.7,))}


@pytest.mark.parametrize(
    "contents",
    [
        [],
        {"a.png": 3},
        {"a.png": {"boxes": [{"label": "cola", "x": 1}]}},
        {"a.png": {"label": "cola", "score": 7}},
        {"images": [], "annotations": [{"image_id": 1}], "categories": []},
    ],
)
def test_files_without_guesses_are_refused(tmp_path, contents):
    write_json(tmp_path / "guesses.json", contents)
    with raises_code("labels-invalid"):
        read_guesses(tmp_path / "guesses.json")
