"""Panels of models in parts, opened as files: the memory of a worker on a plan's page, a pipeline on that of a run."""

import pytest

from dashboards.experiments import Sweep
from dashboards.page import write_page
from dashboards.reports import run_page, tradeoff_page
from tests.support.chromium import (
    find_accessibility_violations,
    find_clipped_cells,
    find_overflowing_elements,
)
from tests.support.memory_reports import build_memory_report
from tests.support.plan_documents import build_document
from tests.unit.dashboards.test_pipeline_timeline import SPANS, piped_record


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharding")
    sweep = Sweep(plan=build_document(), step_times=None, examples_to_target=None, memory=build_memory_report())
    return {
        "memory": write_page(tradeoff_page(sweep, "four workers"), folder / "curve.html"),
        "pipeline": write_page(run_page(piped_record()), folder / "run.html"),
    }


def test_memory_is_drawn_for_each_way_and_tells_its_numbers(browser, pages):
    with browser.page(pages["memory"]) as page:
        page.locator("#memory").scroll_into_view_if_needed()
        assert page.locator("#memory .barlayer .point").count() == 2 * 5 * 4
        legend = page.locator("#memory .legend").text_content()
        assert all(name in legend for name in ("weights", "moments", "activations", "measured"))
        page.locator(".panel#memory + .below summary", has_text="show the numbers").focus()
        page.keyboard.press("Enter")
        assert page.locator("#memory-parts tbody tr:visible").count() == 8


def test_pipeline_is_drawn_with_its_passes(browser, pages):
    with browser.page(pages["pipeline"]) as page:
        page.locator("#pipeline").scroll_into_view_if_needed()
        passes = [span for span in SPANS if span.kind != "wait"]
        assert page.locator("#pipeline .barlayer .point").count() == len(passes)
        labels = page.locator("#pipeline .ytick").all_text_contents()
        assert sorted(filter(None, labels)) == ["stage 1", "stage 2"]


@pytest.mark.parametrize("name", ["memory", "pipeline"])
@pytest.mark.parametrize(("width", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_pages_fit_their_window_and_are_accessible(browser, pages, name, width, scheme):
    with browser.page(pages[name], width, color_scheme=scheme) as page:
        assert find_overflowing_elements(page) == [] and find_accessibility_violations(page) == []
        assert find_clipped_cells(page) == []
