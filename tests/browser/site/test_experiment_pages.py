"""Experiments and plans of the site in a real browser: by keyboard, on a phone, and as axe sees them."""

import pytest

from services.site.experiments.experiments_part import ExperimentsPart
from tests.support.chromium import browser as browser
from tests.support.chromium import engine as engine
from tests.support.chromium import find_accessibility_violations, find_clipped_cells, find_overflowing_elements
from tests.support.experiment_folders import write_results, write_run
from tests.support.site import serve_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    results, parts = write_results(tmp_path_factory.mktemp("site") / "results"), []

    def build_part(context):
        parts.append(ExperimentsPart(context))
        parts[0].index.update_now()
        return parts[0]

    with serve_site(results, None, [build_part]) as client:
        client.results = results
        client.page("/plan/sweep")  # its fits take seconds on a busy machine
        yield client
    parts[0].index.close()


@pytest.mark.parametrize("width", ["desk", "phone"])
@pytest.mark.parametrize(
    "path",
    [
        "experiments",
        "experiments?filter=kind%3Drun&sort=-lr",
        "experiments/first",
        "compare?path=first&path=deep%2Fsecond",
        "plan/sweep",
    ],
)
def test_pages_are_usable_at_every_width(browser, site, path, width):
    with browser.page(site.url + path, width, bypass_csp=True) as page:  # to run axe inside
        if page.locator(".drawn").count():
            page.wait_for_selector(".drawn[data-ready]")
        assert find_accessibility_violations(page) == []
        assert find_overflowing_elements(page) == [] and find_clipped_cells(page) == []


def test_experiments_are_filtered_checked_and_compared_by_keyboard(browser, site):
    with browser.page(f"{site.url}experiments") as page:
        page.get_by_role("searchbox").focus()
        page.keyboard.type("kind=run lr>0")
        page.keyboard.press("Enter")
        page.wait_for_url("**/experiments?filter=*")
        for name in ("first", "deep/second"):
            page.get_by_role("checkbox", name=f"compare {name}", exact=True).focus()
            page.keyboard.press("Space")
        page.get_by_role("button", name="compare the checked ones").press("Enter")
        page.wait_for_selector("#compared[data-ready]")
        assert page.locator("#compared .scatterlayer .trace").count() == 2


def test_checked_experiments_stay_checked_when_a_new_one_appears(browser, site):
    with browser.page(f"{site.url}experiments?filter=kind%3Drun") as page:
        page.get_by_role("checkbox", name="compare first", exact=True).check()
        write_run(site.results / "appears", lr=0.9)
        page.wait_for_selector("text=appears")
        assert page.get_by_role("checkbox", name="compare first", exact=True).is_checked()


def test_a_moved_slider_changes_the_plan_and_its_figure(browser, site):
    with browser.page(f"{site.url}plan/sweep") as page:
        page.wait_for_selector("#front[data-ready]")
        star = "() => document.getElementById('front').data.at(-1).x[0]"
        fastest = page.evaluate(star)
        first = page.locator("#plan-result").inner_text()
        slider = page.get_by_role("slider", name="deadline, slider")
        with page.expect_response("**/plan/sweep?*"):
            slider.press("ArrowLeft")
        assert page.locator("#deadline").input_value().endswith("s")
        page.wait_for_function(f"fastest => ({star})() !== fastest", arg=fastest)
        assert page.locator("#plan-result").inner_text() != first
        with page.expect_response("**/plan/sweep?*price*"):
            page.get_by_label("price", exact=True).fill("3usd")
        page.wait_for_selector("#budget:not([disabled])")
        page.get_by_role("link", name="train with this plan").wait_for()


def test_notes_are_written_without_a_key_on_this_machine(browser, site):
    with browser.page(f"{site.url}experiments/sweep", "phone") as page:
        page.get_by_label("note", exact=True).fill("The larger batch is not worth it.")
        page.get_by_role("button", name="write").click()
        page.wait_for_selector("text=The larger batch is not worth it.")


def test_the_table_works_without_scripts(browser, site):
    with browser.page(f"{site.url}experiments", java_script_enabled=False) as page:
        page.get_by_role("link", name="lr", exact=True).click()
        page.wait_for_url("**/experiments?sort=-lr")
        assert page.locator("th[aria-sort=descending]").inner_text() == "lr"
