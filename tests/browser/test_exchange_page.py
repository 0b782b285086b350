"""The page of a plan with ways of exchange, opened as a file: its map answers to mouse and keyboard."""

import pytest

from dashboards.experiments import Sweep
from dashboards.page import write_page
from dashboards.reports import tradeoff_page
from tests.support.chromium import (
    find_accessibility_violations,
    find_clipped_cells,
    find_overflowing_elements,
)
from tests.support.exchange_plans import DELAYS, OPTIONS, RATES, build_exchange_document


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    sweep = Sweep(plan=build_exchange_document(), step_times=None, examples_to_target=None)
    return write_page(tradeoff_page(sweep, "two hosts"), tmp_path_factory.mktemp("exchanges") / "curve.html")


def test_map_tells_each_network_to_mouse_and_keyboard(browser, path):
    with browser.page(path) as page:
        page.locator("#exchange-map").scroll_into_view_if_needed()
        assert page.locator("#exchange-map .heatmaplayer image").count() == 1
        legend = page.locator("#exchange-map .legend").text_content()
        assert all((name or "exact sums") in legend for name in OPTIONS) and "your links" in legend
        area = page.locator("#exchange-map .xy").first.bounding_box()
        page.mouse.move(area["x"] + 0.1 * area["width"], area["y"] + 0.1 * area["height"])
        page.wait_for_selector("#exchange-map .hoverlayer .hovertext")
        assert "times sooner" in page.locator("#exchange-map .hoverlayer").text_content()
        page.locator(".panel#exchange-map + .below summary", has_text="show the numbers").focus()
        page.keyboard.press("Enter")
        assert page.locator("#exchange-map-cells tbody tr:visible").count() == len(RATES) * len(DELAYS)


@pytest.mark.parametrize(("width", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_page_fits_its_window_and_is_accessible(browser, path, width, scheme):
    with browser.page(path, width, color_scheme=scheme) as page:
        assert find_overflowing_elements(page) == [] and find_accessibility_violations(page) == []
        assert find_clipped_cells(page) == []  # it opens all details
        boxes = [panel.bounding_box() for panel in page.locator(".panel").all()]
        assert len(boxes) == 2 and all(box["width"] > 250 for box in boxes)
        assert (boxes[0]["y"] == boxes[1]["y"]) == (width == "desk")  # beside each other where there is room
