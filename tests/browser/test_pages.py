"""Pages as files, in a real browser: they draw themselves, answer to clicks, fit a phone, and can be read by all."""

import pytest

from dashboards.build import build_index
from dashboards.experiments import load_experiment
from dashboards.page import write_page
from dashboards.reports import drift_page, write_pages
from equipoise.storage.atomic import write_json
from tests.support.chromium import find_accessibility_violations, find_overflowing_elements, read_panel_traces
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.dashboards.test_training_run import record

KINDS = ("curve", "scaling", "run", "drift", "index")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A page of each kind, from files as jobs leave them."""
    root = tmp_path_factory.mktemp("runs")
    write_sweep_folder(root / "swept")
    for name in ("one", "two"):
        write_json(root / name / "record.json", record().to_json())
    (root / "half").mkdir()
    (root / "half" / "record.json").write_text('{"schema": 1, ')
    build_index(root, root / "index.html")
    check = drift_page(verdict(), [(png(), "odd.png")], [(png(), "usual")])
    found = {"curve": "swept/curve.html", "scaling": "swept/scaling.html", "run": "one/run.html", "index": "index.html"}
    return {kind: root / name for kind, name in found.items()} | {"drift": write_page(check, root / "drift.html")}


def verdict():
    """On darker pictures, by the toy's reference."""
    from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict

    held = shapes_profile()
    some = render_shapes(200, 7)[0]
    shown = extract_shape_features((some.float() * 0.6).byte())
    usual = extract_shape_features(render_shapes(300, 8)[0])
    found = compute_dataset_verdict(
        held, shown, shown.fourier_features, usual.fourier_features, usual.predicted_classes
    )
    return found | {"moved": [], "classes": dict(enumerate(found["classes"])), "usual": dict(enumerate(found["usual"]))}


def png():
    from equipoise.images.png import encode_png

    return encode_png(render_shapes(1, 1)[0][0].numpy())


def test_every_panel_of_a_sweep_has_its_data(browser, files):
    plan = load_experiment(files["curve"].parent).content.plan
    with browser.page(files["curve"]) as page:
        found = {name: read_panel_traces(page, name) for name in ("curves", "front", "heat", "rates")}
        assert ["every plan", len(plan["options"])] in found["front"]
        assert ["the front", len(plan["front"])] in found["front"]
        assert ["trials", 12] in found["curves"] and ["best", 4] in found["rates"]
        assert page.locator("#heat .heatmaplayer image").count() == 1
        assert page.locator("#curves .scatterlayer .trace").count() >= 10


def test_the_deadline_chooses_among_the_front(browser, files):
    plan = load_experiment(files["curve"].parent).content.plan
    with browser.page(files["curve"]) as page:
        slider, said = page.locator("#front-deadline"), page.locator("#front-chosen")
        before = said.inner_text()
        slider.fill("1000")
        cheapest = min(plan["front"], key=lambda one: one["worker_seconds"])
        assert f"{cheapest['workers']} worker" in said.inner_text() and said.inner_text() != before
        slider.fill("0")
        assert "no plan is that fast" in said.inner_text()
        slider.fill("1000")
        marked = page.evaluate("() => document.getElementById('front').data.at(-1).x[0]")
        assert marked == pytest.approx(cheapest["seconds"]["value"])
        slider.press("ArrowLeft")
        assert slider.get_attribute("aria-valuetext") in said.inner_text()


def test_a_point_that_is_pointed_at_says_what_it_is(browser, files):
    with browser.page(files["curve"]) as page:
        page.locator("#front").scroll_into_view_if_needed()
        box = page.locator("#front .scatterlayer .trace").nth(1).locator(".points path").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_selector("#front .hoverlayer .hovertext")
        assert "worker" in page.locator("#front .hoverlayer").text_content()


def test_the_index_is_sorted_found_in_and_compared(browser, files):
    with browser.page(files["index"]) as page:
        rows = page.locator("#experiments tbody tr")
        assert rows.count() == 4
        head = page.locator("#experiments th", has_text="seconds")
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        page.locator("#experiments-find").fill("swept")
        assert page.locator("#experiments tbody tr:visible").count() == 1
        page.locator("#experiments-find").fill("")
        for name in ("one", "swept"):
            page.locator(f".pick[value='{name}']").check()
        assert page.locator("#comparison .differs").count() >= 3
        assert {name for name, _ in read_panel_traces(page, "compared")} == {"one", "swept"}
        assert page.locator(".pick[value='two']").is_disabled()
        page.locator(".pick[value='one']").uncheck()
        assert "Choose two" in page.locator("#comparison").inner_text()
        assert "half: " in page.locator("main").inner_text()
        page.locator("a", has_text="swept").first.click()
        page.wait_for_selector("body[data-drawn]")
        assert "Trade-off: swept" in page.title()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("width", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_a_page_fits_its_window_and_can_be_read_by_all(browser, files, kind, width, scheme):
    with browser.page(files[kind], width, color_scheme=scheme) as page:
        assert find_overflowing_elements(page) == []
        for panel in page.locator(".panel").all():
            assert panel.locator("svg").count() and panel.bounding_box()["width"] > 250
        assert find_accessibility_violations(page) == []


def test_two_thousand_trials_are_a_page_that_opens(browser, tmp_path):
    place = write_sweep_folder(tmp_path / "large", seeds=167)  # of 12 settings
    (page, _) = write_pages(load_experiment(place))
    assert page.stat().st_size < 8e6
    with browser.page(page) as shown:
        assert ["trials", 4 * 167] in read_panel_traces(shown, "curves")
