"""Pictures of the labelling page: large, broken and many ones, and those of a camera; the page fits its window."""

import pytest
from PIL import Image

from tests.support.chromium import find_accessibility_violations, find_overflowing_elements, open_camera_context
from tests.support.labelling import write_pictures
from tests.support.labelling_person import READY, is_close, stored_boxes


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


def test_queue_of_5000_pictures_opens_one_after_the_other(serve_page, open_page, tmp_path):
    (name,) = write_pictures(tmp_path / "photos", 1)
    for number in range(1, 5000):
        (tmp_path / "photos" / f"{number:04}.png").hardlink_to(tmp_path / "photos" / name)
    person = open_page(serve_page())
    assert person.page.locator("#progress").inner_text() == "0 of 5000 labelled"
    for number in range(3):
        shown = name if number == 0 else f"{number:04}.png"
        assert person.page.locator("#status").inner_text().startswith(shown)
        person.press("b", "Enter")
    assert person.page.locator("#progress").inner_text() == "3 of 5000 labelled"
    assert stored_boxes(tmp_path, "0002.png") == stored_boxes(tmp_path, name) != []


@pytest.mark.slow
def test_picture_is_taken_by_a_camera(browser, serve_page, open_page, tmp_path):
    (tmp_path / "photos").mkdir()
    with open_camera_context(browser) as context:
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
