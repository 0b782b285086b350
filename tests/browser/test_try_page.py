"""The page on which a person tries a detector: a picture from a file is answered, and its boxes are drawn."""

import pytest

from tests.support.chromium import find_accessibility_violations, find_overflowing_elements, open_camera_context
from tests.support.detector_service import encode_picture, start_detector_service
from tests.support.square_detector import draw_squares, publish_squares

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("try")
    with start_detector_service(publish_squares(folder), folder) as started:
        yield started


@pytest.mark.parametrize(("width", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_boxes_are_drawn_on_a_picture_from_a_file(browser, service, width, scheme, tmp_path):
    pixels = draw_squares(3, 98)[0][2].permute(1, 2, 0).numpy()
    path = tmp_path / "squares.png"
    path.write_bytes(encode_picture(pixels))
    found = service.ask(path.read_bytes())["boxes"]
    with browser.page(f"http://127.0.0.1:{service.port}/try", width, color_scheme=scheme) as page:
        page.set_input_files("#file", path)
        page.wait_for_selector("#stage:not([hidden])")
        assert f"Found {len(found)} box" in page.locator("#state").inner_text()
        rows = page.locator("#answers tr td:first-child").all_inner_texts()
        assert rows == [box["label"] for box in found][:20]
        size = page.evaluate(
            "() => [document.getElementById('canvas').width, document.getElementById('canvas').height]"
        )
        assert size == [48, 48]
        colour = page.evaluate(
            "([x, y]) => [...document.getElementById('canvas').getContext('2d').getImageData(x, y, 1, 1).data]",
            [round(found[0]["x"] + found[0]["width"] / 2), round(found[0]["y"] + found[0]["height"])],
        )
        assert colour[3] == 255
        assert find_overflowing_elements(page) == [] and find_accessibility_violations(page) == []


def test_picture_of_the_camera_is_answered(browser, service):
    with open_camera_context(browser) as context:
        page = context.new_page()
        page.on("pageerror", lambda error: browser.errors.append(str(error)))
        page.goto(f"http://127.0.0.1:{service.port}/try")
        page.locator("#camera").click()
        page.wait_for_function("() => document.getElementById('video').videoWidth > 0")
        assert page.locator("#camera").inner_text() == "Take a picture"
        film_size = page.evaluate("() => [video.videoWidth, video.videoHeight]")
        page.locator("#camera").click()
        page.wait_for_selector("#stage:not([hidden])")
        assert page.locator("#state").inner_text().startswith("Found ")
        assert page.evaluate("() => [canvas.width, canvas.height]") == film_size


def test_camera_that_nobody_may_use_is_explained(browser, service):
    with browser.page(f"http://127.0.0.1:{service.port}/try") as page:
        page.locator("#camera").click()
        page.wait_for_function("() => document.getElementById('state').textContent.startsWith('The camera cannot')")


def test_reason_is_shown_where_there_is_no_answer(browser, service, tmp_path):
    path = tmp_path / "broken.png"
    path.write_bytes(b"no picture")
    with browser.page(f"http://127.0.0.1:{service.port}/try") as page:
        page.set_input_files("#file", path)
        page.wait_for_function("() => document.getElementById('state').textContent.startsWith('No answer')")
        assert "not an image" in page.locator("#state").inner_text()
    browser.errors.clear()  # the browser reports the refused request
