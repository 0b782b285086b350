"""Boxes on the labelling page: drawn, moved, named, undone and saved by mouse, touch and keyboard."""

import pytest

from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import write_json
from tests.support.labelling import build_guess, write_pictures
from tests.support.labelling_person import is_close, stored_boxes


def test_box_is_drawn_moved_resized_named_undone_and_saved_by_mouse_and_keys(client, open_page, tmp_path):
    person = open_page(client)
    person.page.fill("#author", "Anna")
    person.drag((20, 20), (50, 60))
    assert is_close(person.boxes(), [("cola", 20, 20, 30, 40)])
    person.press("2")
    person.drag((30, 30), (50, 40))
    assert is_close(person.boxes(), [("crisps", 40, 30, 30, 40)])
    person.drag((70, 70), (90, 80))  # the handle at its right bottom
    assert is_close(person.boxes(), [("crisps", 40, 30, 50, 50)])
    person.drag((95, 5), (115, 25))
    assert len(person.boxes()) == 2
    person.press("Delete")
    assert is_close(person.boxes(), [("crisps", 40, 30, 50, 50)])
    person.press("Control+z", "Control+z")
    assert is_close(person.boxes(), [("crisps", 40, 30, 50, 50)])
    person.press("Control+z", "z", "z")
    assert is_close(person.boxes(), [("cola", 20, 20, 30, 40)])
    person.press("y", "Control+y")
    assert is_close(person.boxes(), [("crisps", 40, 30, 30, 40)])
    person.press("Enter")
    assert person.page.locator("#status").inner_text().startswith("001.png")
    assert person.page.locator("#progress").inner_text().startswith("1 of 4 labelled")
    assert is_close(stored_boxes(tmp_path), [("crisps", 40, 30, 30, 40)])
    assert LabelStore(tmp_path / "labels").read_labels("000.png").author == "Anna"


def test_everything_works_by_keyboard_alone(client, open_page, tmp_path):
    person = open_page(client)
    person.press("b")
    assert is_close(person.boxes(), [("cola", 45, 34, 30, 22)])
    person.press("Control+ArrowLeft", "ArrowUp", "Shift+ArrowRight", "Control+Shift+ArrowDown", "3")
    assert is_close(person.boxes(), [("water", 35, 33, 31, 32)])
    person.press("b", "2", "Shift+Tab")
    assert person.page.locator(".box.selected .tag").inner_text() == "water"
    person.press("1", "Tab")
    assert person.page.locator(".box.selected .tag").inner_text() == "crisps"
    person.press("Backspace", "Escape")
    assert person.page.locator(".box.selected").count() == 0
    person.press("Enter", "p")
    assert is_close(person.boxes(), [("cola", 35, 33, 31, 32)])
    assert is_close(stored_boxes(tmp_path), [("cola", 35, 33, 31, 32)])


def test_repeated_arrow_keys_are_undone_as_one_change(client, open_page):
    person = open_page(client)
    person.press("b", "ArrowLeft", "ArrowLeft", "ArrowLeft", "z")
    assert is_close(person.boxes(), [("cola", 45, 34, 30, 22)])


def test_all_by_touch_on_a_phone(client, open_page, tmp_path):
    person = open_page(client, "phone")
    person.swipe(((20, 20), (50, 60)))
    assert is_close(person.boxes(), [("cola", 20, 20, 30, 40)])
    person.swipe(((30, 30), (50, 40)))
    person.swipe(((70, 70), (90, 80)))
    assert is_close(person.boxes(), [("cola", 40, 30, 50, 50)])
    person.page.locator("#classes button", has_text="water").tap()
    person.wait_for_boxes([("water", 40, 30, 50, 50)])
    person.page.locator("#add").tap()
    person.wait_for_boxes([("water", 40, 30, 50, 50), ("water", 45, 34, 30, 23)])
    person.page.locator("#delete").tap()
    person.wait_for_boxes([("water", 40, 30, 50, 50)])
    person.page.locator("#undo").tap()
    person.wait_for_boxes([("water", 40, 30, 50, 50), ("water", 45, 34, 30, 23)])
    person.page.locator("#redo").tap()
    person.wait_for_boxes([("water", 40, 30, 50, 50)])
    before = person.page.locator("#stage").bounding_box()["width"]
    person.swipe(((50, 40), (30, 40)), ((70, 40), (90, 40)))
    assert person.page.locator("#stage").bounding_box()["width"] > 1.5 * before
    assert is_close(person.boxes(), [("water", 40, 30, 50, 50)])
    handle = person.page.locator(".box.selected .handle[data-edge='se']").evaluate(
        """(handle) => {
            const own = getComputedStyle(handle).width, around = getComputedStyle(handle, "::after").top;
            return parseFloat(own) - 2 * parseFloat(around);
        }"""
    )
    assert handle >= 40
    person.page.locator("#fit").tap()
    person.page.locator("#accept").tap()
    person.page.locator("#status", has_text="001.png").wait_for()
    assert is_close(stored_boxes(tmp_path), [("water", 40, 30, 50, 50)])


def test_box_is_drawn_over_another_one(client, open_page):
    person = open_page(client)
    person.drag((10, 10), (110, 80))
    person.press("d")
    person.drag((30, 30), (50, 50))
    assert is_close(person.boxes(), [("cola", 10, 10, 100, 70), ("cola", 30, 30, 20, 20)])
    person.press("d")
    assert person.page.locator("#over").get_attribute("aria-pressed") == "false"


@pytest.mark.slow
def test_a_hundred_pictures_with_first_guesses_take_at_most_150_actions(serve_page, open_page, tmp_path):
    names = write_pictures(tmp_path / "photos", 100)
    wrong = {20: {"label": "cola"}, 50: {"x": 60}, 80: None}  # class, place, and a box that is not there
    guesses = {name: build_guess(number) for number, name in enumerate(names)}
    for number, change in wrong.items():
        boxes = guesses[names[number]]["boxes"]
        boxes.append(dict(boxes[0], x=80)) if change is None else boxes[0].update(change)
    write_json(tmp_path / "guesses.json", guesses)
    client = serve_page(guesses=tmp_path / "guesses.json")
    person = open_page(client)
    for number in range(100):
        assert person.page.locator("#status").inner_text().startswith(names[number])
        if number == 20:
            person.press("Tab", str(number % 3 + 1))
        elif number == 50:
            person.drag((75, 40), (35, 40))
            person.actions += 1
        elif number == 80:
            person.page.locator(".box").nth(1).click()
            person.actions += 1
            person.press("Delete")
        person.press("Enter")
    assert person.page.locator("#empty").inner_text().startswith("All pictures are labelled.")
    assert person.actions == 105
    expected = {name: build_guess(number)["boxes"][0] for number, name in enumerate(names)}
    stored, problems = LabelStore(tmp_path / "labels").read_all()
    assert problems == [] and len(stored) == 100
    for labels in stored:
        box = expected[labels.picture]
        got = [(b.label, b.x, b.y, b.width, b.height) for b in labels.boxes]
        assert is_close(got, [(box["label"], box["x"], box["y"], box["width"], box["height"])])
