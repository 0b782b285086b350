"""A person at the labelling page in a real browser: by mouse, touch and keyboard, on a large screen and a phone."""

import re
from contextlib import ExitStack

import pytest

from equipoise.labels.store import LabelStore
from jobs.cluster.processes import wait_until
from tests.support.chromium import WIDTHS
from tests.support.labelling import serve_labelling, write_pictures

PHONE = {"has_touch": True, "is_mobile": True, "device_scale_factor": 2}
BOX_NAME = re.compile(r"(.+?)(?: \d+ % guessed)?, (\d+) by (\d+) pixels at (-?\d+), (-?\d+)")
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
        names = [BOX_NAME.fullmatch(label) for label in labels]
        return [(name[1], *(int(name[i]) for i in (4, 5, 2, 3))) for name in names]

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
