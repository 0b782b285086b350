"""The labelling page in a real browser, by mouse, touch and keyboard, on a large screen and a phone."""

import os
import shutil
import signal
from contextlib import ExitStack

import pytest
from PIL import Image

from equipoise.labels.store import LabelStore
from equipoise.storage.atomic import write_json
from jobs.cluster.processes import wait_until
from tests.support.chromium import WIDTHS, find_accessibility_violations, find_overflowing_elements
from tests.support.labelling import build_guess, serve_labelling, write_pictures

PHONE = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}
READY = "body[data-drawn]:not([data-busy])"


class Labeller:
    """A person at an open page, who counts what they do."""

    def __init__(self, page):
        self.page, self.actions = page, 0

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)
            self.actions += 1
            self.page.wait_for_selector(READY)

    def click(self, selector):
        self.page.locator(selector).click()
        self.page.wait_for_selector(READY)

    def point(self, x, y):
        """Return where a pixel of the picture lies on the screen."""
        area = self.page.locator("#stage").bounding_box()
        size = self.page.evaluate("() => [document.getElementById('picture').naturalWidth]")
        scale = area["width"] / size[0]
        return area["x"] + x * scale, area["y"] + y * scale

    def drag(self, start, end):
        self.page.mouse.move(*self.point(*start))
        self.page.mouse.down()
        self.page.mouse.move(*self.point(*[(a + b) / 2 for a, b in zip(start, end, strict=True)]))
        self.page.mouse.move(*self.point(*end))
        self.page.mouse.up()

    def swipe(self, *fingers, steps=4):
        """Move fingers over the screen, each from one point of the picture to another."""
        driver = self.page.context.new_cdp_session(self.page)
        paths = [(self.point(*start), self.point(*end)) for start, end in fingers]

        def send(kind, share, count):
            places = [
                {"x": a[0] + (b[0] - a[0]) * share, "y": a[1] + (b[1] - a[1]) * share, "id": index}
                for index, (a, b) in enumerate(paths[:count])
            ]
            driver.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})

        for count in range(1, len(paths) + 1):
            send("touchStart", 0, count)
        for step in range(1, steps + 1):
            send("touchMove", step / steps, len(paths))
        send("touchEnd", 1, 0)
        driver.detach()

    def boxes(self):
        """Return class, x, y, width and height of each box as the page shows them."""
        labels = self.page.locator(".box").evaluate_all("all => all.map((box) => box.getAttribute('aria-label'))")
        rows = [label.replace(",", "").split() for label in labels]
        return [(row[0], *(int(row[i]) for i in (6, 7, 1, 3))) for row in rows]

    def wait_for_boxes(self, expected):
        """Wait until the page shows these boxes: a tap becomes a click a little later."""
        wait_until(lambda: is_close(self.boxes(), expected), 20)


@pytest.fixture
def serve_page(tmp_path):
    """Serve a page with given options until the end of the test."""
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(serve_labelling(tmp_path, **options))


@pytest.fixture
def open_page(browser, serve_page):
    """Open a page as a labeller; all pages are closed at the end of the test."""
    contexts, note_error = [], browser.errors.append

    def open_as_labeller(client, width="desk", context=None, **options):
        if context is None:
            viewport = dict(zip(("width", "height"), WIDTHS[width], strict=True))
            given = PHONE if width == "phone" else {}
            context = browser.engine.new_context(viewport=viewport, **given, **options)
            contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda entry: note_error(entry.text) if entry.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: note_error(str(error)))
        page.goto(client.url)
        page.wait_for_selector(READY)
        return Labeller(page)

    yield open_as_labeller
    for context in contexts:
        context.close()


@pytest.fixture
def client(serve_page, tmp_path):
    """Page on four pictures of 120x90 pixels without guesses."""
    write_pictures(tmp_path / "photos", 4)
    return serve_page()


def stored_boxes(tmp_path, name="000.png"):
    stored = LabelStore(tmp_path / "labels").read_labels(name)
    return [(box.label, round(box.x), round(box.y), round(box.width), round(box.height)) for box in stored.boxes]


def is_close(boxes, expected, pixels=1):
    pairs = [*zip(boxes, expected, strict=False)]
    is_same = all(
        a[0] == b[0] and all(abs(p - q) <= pixels for p, q in zip(a[1:], b[1:], strict=True)) for a, b in pairs
    )
    return is_same and len(boxes) == len(expected)


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


def test_two_browsers_label_one_queue_without_loss_or_double_work(serve_page, open_page, tmp_path):
    names = write_pictures(tmp_path / "photos", 10)
    client = serve_page()
    people = {name: open_page(client) for name in ("Anna", "Ben")}
    for name, person in people.items():
        person.page.fill("#author", name)
        person.page.keyboard.press("Escape")
        person.page.locator("#stage").focus()
    seen = []
    for turn in range(10):
        person = list(people.values())[turn % 2]
        seen.append(person.page.locator("#status").inner_text().split(",")[0])
        person.press("b", "Enter")
    assert sorted(seen) == names
    stored = LabelStore(tmp_path / "labels").read_all()[0]
    assert [labels.revision for labels in stored] == [1] * 10
    assert {labels.author for labels in stored} == {"Anna", "Ben"} and all(len(labels.boxes) == 1 for labels in stored)


def test_conflict_shows_the_others_labels_and_undo_brings_back_the_own_ones(client, open_page, browser, tmp_path):
    person = open_page(client)
    person.drag((20, 20), (50, 60))
    opened = client.post("/open", {"holder": "ben", "picture": "000.png"})[1]
    assert opened["is_taken"]
    box = {"label": "water", "x": 5, "y": 5, "width": 9, "height": 9}
    assert client.save("ben", opened, boxes=[box], author="Ben")[0] == 200
    person.press("Enter")
    assert "Ben" in person.page.locator("#alert").inner_text()
    assert person.boxes() == [("water", 5, 5, 9, 9)]
    person.press("z")
    assert is_close(person.boxes(), [("cola", 20, 20, 30, 40)])
    person.press("Enter")
    stored = LabelStore(tmp_path / "labels").read_labels("000.png")
    assert stored.revision == 2 and is_close(stored_boxes(tmp_path), [("cola", 20, 20, 30, 40)])
    assert [error for error in browser.errors if "409" not in error] == []
    browser.errors.clear()


def test_tab_that_is_killed_in_mid_box_loses_only_that_box(client, open_page, browser, tmp_path):
    person = open_page(client)
    person.drag((20, 20), (50, 60))
    person.press("Enter")
    person.drag((60, 20), (90, 60))
    person.page.mouse.move(*person.point(5, 5))
    person.page.mouse.down()
    person.page.mouse.move(*person.point(15, 15))
    with person.page.expect_event("crash"):
        kill_tabs(browser.engine)
    assert is_close(stored_boxes(tmp_path), [("cola", 20, 20, 30, 40)])
    again = open_page(client, context=person.page.context)
    assert "here again" in again.page.locator("#status").inner_text()
    assert is_close(again.boxes(), [("cola", 60, 20, 30, 40)])
    again.press("Enter")
    assert is_close(stored_boxes(tmp_path, "001.png"), [("cola", 60, 20, 30, 40)])


def kill_tabs(engine):
    """Kill the processes of all tabs of the browser that this test has started."""
    session = engine.new_browser_cdp_session()
    for process in session.send("SystemInfo.getProcessInfo")["processInfo"]:
        if process["type"] == "renderer":
            os.kill(process["id"], signal.SIGKILL)


def test_reload_keeps_the_picture_and_what_was_drawn(client, open_page):
    person = open_page(client)
    person.press("s")
    person.drag((20, 20), (50, 60))
    person.page.reload()
    person.page.wait_for_selector(READY)
    shown = person.page.locator("#progress").inner_text()
    assert shown.startswith("0 of 4") and "others" not in shown
    person.press("s")
    assert is_close(person.boxes(), [("cola", 20, 20, 30, 40)])


def test_broken_and_large_pictures_are_named_and_shown(serve_page, open_page, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"\xff\xd8\xff nothing")
    Image.new("RGB", (8660, 5774), "#336699").save(tmp_path / "photos" / "b.jpg")
    client = serve_page()
    person = open_page(client)
    assert "8660 by 5774 pixels" in person.page.locator("#status").inner_text()
    person.page.locator("#broken summary").click()
    assert "a.jpg" in person.page.locator("#broken").inner_text()
    width = person.page.evaluate("() => document.getElementById('picture').naturalWidth")
    scale = width / 8660
    person.drag((1000 * scale, 1000 * scale), (3000 * scale, 2500 * scale))
    person.press("Enter")
    assert is_close(stored_boxes(tmp_path, "b.jpg"), [("cola", 1000, 1000, 2000, 1500)], pixels=10)


def test_class_is_given_by_one_key_and_a_guess_accepted_by_enter(serve_page, open_page, tmp_path):
    write_pictures(tmp_path / "photos", 3)
    write_json(tmp_path / "guesses.json", {"000.png": {"label": "water", "score": 0.8}})
    client = serve_page(kind="class", guesses=tmp_path / "guesses.json")
    person = open_page(client)
    assert person.page.locator("#classes [aria-pressed='true']").inner_text().startswith("water")
    person.press("Enter", "2", "1", "p", "3")
    assert person.page.locator("#empty").inner_text().startswith("All pictures are labelled.")
    stored = {labels.picture: labels.label for labels in LabelStore(tmp_path / "labels").read_all()[0]}
    assert stored == {"000.png": "water", "001.png": "crisps", "002.png": "water"}


def test_pictures_and_classes_are_added_on_the_page(serve_page, open_page, tmp_path):
    (tmp_path / "photos").mkdir()
    write_pictures(tmp_path / "elsewhere", 2)
    client = serve_page(classes=())
    person = open_page(client)
    assert "add some" in person.page.locator("#empty").inner_text()
    files = [tmp_path / "elsewhere" / f"00{number}.png" for number in range(2)]
    person.page.locator("#chosen-files").set_input_files(files)
    person.page.wait_for_selector("#stage:not([hidden])")
    person.page.locator("#classes input").fill("lemonade")
    person.page.keyboard.press("Enter")
    person.page.locator("#classes button", has_text="lemonade").wait_for()
    person.page.wait_for_selector(READY)
    person.drag((20, 20), (50, 60))
    person.press("Enter")
    (stored,) = LabelStore(tmp_path / "labels").read_all()[0]
    assert [box.label for box in stored.boxes] == ["lemonade"]
    assert len([*(tmp_path / "photos").iterdir()]) == 2


@pytest.mark.slow
def test_picture_is_taken_by_a_camera(browser, serve_page, open_page, tmp_path):
    (tmp_path / "photos").mkdir()
    flags = ("--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with (
        browser.engine.browser_type.launch(executable_path=shutil.which("chromium"), args=flags) as engine,
        engine.new_context(permissions=["camera"]) as context,
    ):
        person = open_page(serve_page(), context=context)
        person.page.locator("#camera").click()
        person.page.wait_for_function("() => document.getElementById('video').videoWidth > 0")
        person.page.locator("#shoot").click()
        person.page.locator("#camera-status", has_text="Taken").wait_for()
        person.page.locator("#camera-close").click()
        person.page.wait_for_selector("#stage:not([hidden])")
        person.page.wait_for_selector(READY)
        assert "camera-" in person.page.locator("#picture").get_attribute("alt")
    (taken,) = (tmp_path / "photos").iterdir()
    with Image.open(taken) as image:
        assert image.format == "JPEG" and min(image.size) >= 100


@pytest.mark.parametrize("kind", ["boxes", "class"])
@pytest.mark.parametrize(("width", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_page_fits_its_window_and_is_accessible(serve_page, open_page, tmp_path, kind, width, scheme):
    write_pictures(tmp_path / "photos", 1)
    (tmp_path / "photos" / "0.jpg").write_bytes(b"broken")
    client = serve_page(kind=kind)
    person = open_page(client, width, bypass_csp=True, color_scheme=scheme)
    if kind == "boxes":
        person.press("b")
    assert find_overflowing_elements(person.page) == []
    assert find_accessibility_violations(person.page) == []
    person.press("Enter" if kind == "boxes" else "1")
    person.page.wait_for_selector("#empty:not([hidden])")
    assert find_accessibility_violations(person.page) == []
