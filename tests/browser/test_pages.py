"""Pages opened as files in a real browser: they draw themselves, react to clicks, fit a phone and are accessible."""

from pathlib import Path

import pytest

from dashboards.build import build_index
from dashboards.experiments import load_experiment
from dashboards.links_page import build_links_page
from dashboards.page import write_page
from dashboards.panels.experiment_index import INDEX_COLUMNS
from dashboards.profile_page import build_profile_page
from dashboards.reports import drift_page, write_pages
from equipoise.profiling.advice import add_advice
from equipoise.storage.atomic import write_json
from tests.support.chromium import (
    find_accessibility_violations,
    find_clipped_cells,
    find_overflowing_elements,
    read_panel_traces,
)
from tests.support.drift_data import extract_shape_features, render_shapes, shapes_profile
from tests.support.link_reports import build_link_report
from tests.support.profile_reports import build_profile_report, build_sync_point
from tests.support.sweep_folders import write_sweep_folder
from tests.unit.dashboards.test_training_run import record

PAGE_KINDS = ("curve", "scaling", "run", "drift", "stream", "rows", "links", "profile", "index")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Paths of one page of each kind, built from files as jobs write them."""
    root = tmp_path_factory.mktemp("runs")
    write_sweep_folder(root / "swept")
    for name in ("one", "two"):
        write_json(root / name / "record.json", record().to_json())
    (root / "half").mkdir()
    (root / "half" / "record.json").write_text('{"schema": 1, ')
    build_index(root, root / "index.html")
    page = drift_page(compute_verdict(), [(render_png(), "odd.png")], [(render_png(), "usual")])
    paths = {"curve": "swept/curve.html", "scaling": "swept/scaling.html", "run": "one/run.html", "index": "index.html"}
    drift_pages = {"drift": write_page(page, root / "drift.html"), "stream": write_stream_page(root / "stream.html")}
    drift_pages["rows"] = write_rows_page(root / "rows.html")
    drift_pages["links"] = write_page(build_links_page(build_link_report()), root / "links.html")
    report = add_advice(build_profile_report(sync_points=[build_sync_point(0.02)]))
    drift_pages["profile"] = write_page(build_profile_page(report), root / "profile.html")
    return {kind: root / name for kind, name in paths.items()} | drift_pages


def write_stream_page(path):
    """Write the page of requests that change between two known conditions."""
    from equipoise.drift.diagnosis.verdict import ChartHistory, ChartReading, StreamVerdict

    names, steps = ("as published", "warmer, 4,400 K and darker, -0.5 stops"), range(1, 201)
    shares = [step / 200 for step in steps]
    history = ChartHistory(
        image_numbers=[32 * step for step in steps],
        threshold=[9.0] * 200,
        charts={"energy": [5.0 + step % 3 for step in steps]},
        conditions={names[0]: [1 - share for share in shares], names[1]: shares},
    )
    verdict = StreamVerdict(
        state="ok",
        images=6400,
        charts=(ChartReading(name="energy", value=6.0, threshold=9.0, effect=None),),
        conditions={names[0]: 0.4, names[1]: 0.6},
        condition=names[1],
    )
    return write_page(drift_page(verdict, [], [], history), path)


def write_rows_page(path):
    """Write the page of rows of a table that have moved, with the rows that moved most."""
    from dashboards.page import NumberCell, Table
    from equipoise.drift.diagnosis.verdict import ChartReading, CorruptionEffect, DatasetVerdict

    effect = CorruptionEffect(
        cause="column income", detail="higher", value=0.5, unit="standard deviations", low=0.4, high=0.6, explained=0.9
    )
    quarters = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
    verdict = DatasetVerdict(
        kind="table",
        has_accuracy=False,
        state="drift",
        why="column income lies 0.5 standard deviations higher than in the reference (0.4 to 0.6)",
        images=400,
        cause=effect.cause,
        effects=(effect,),
        charts=tuple(ChartReading(name=f"x{n}", value=9.0 - n, threshold=4.0, effect=None) for n in range(12)),
        classes=dict.fromkeys(quarters, 100),
        usual=dict.fromkeys(quarters, 150),
        folder="customers-of-november.csv",
        bundle="income",
    )
    columns = ["row", "income", "place of residence", "first contract"]
    rows = [[n, NumberCell(1e5 / n, f"{1e5 / n:,.0f}"), "Schwarzenberg", "2026-11-25 12:00:00"] for n in range(1, 13)]
    return write_page(drift_page(verdict, [], [], moved_examples=Table(name="moved", columns=columns, rows=rows)), path)


def compute_verdict():
    """Return the drift verdict on darkened images."""
    from equipoise.drift.diagnosis.dataset_verdict import compute_dataset_verdict

    images = render_shapes(200, 7)[0]
    darkened = extract_shape_features((images.float() * 0.6).byte())
    reference = extract_shape_features(render_shapes(300, 8)[0])
    return compute_dataset_verdict(
        shapes_profile(),
        darkened,
        darkened.fourier_features,
        reference.fourier_features,
        reference.predicted_classes,
    )


def render_png():
    from equipoise.images.png import encode_png

    return encode_png(render_shapes(1, 1)[0][0].numpy())


def test_every_panel_of_a_sweep_page_has_its_data(browser, pages):
    plan = load_experiment(pages["curve"].parent).content.plan
    with browser.page(pages["curve"]) as page:
        traces = {name: read_panel_traces(page, name) for name in ("curves", "front", "heat", "rates")}
        assert ["every plan", len(plan.options)] in traces["front"]
        assert ["the front", len(plan.front)] in traces["front"]
        assert ["trials", 12] in traces["curves"] and ["best", 4] in traces["rates"]
        assert page.locator("#heat .heatmaplayer image").count() == 1
        assert page.locator("#curves .scatterlayer .trace").count() >= 10


def test_deadline_slider_chooses_a_plan_of_the_front(browser, pages):
    plan = load_experiment(pages["curve"].parent).content.plan
    with browser.page(pages["curve"]) as page:
        slider, chosen_text = page.locator("#front-deadline"), page.locator("#front-chosen")
        before = chosen_text.inner_text()
        slider.fill("1000")
        cheapest = min(plan.front, key=lambda setting: setting.worker_seconds)
        assert f"{cheapest.workers} worker" in chosen_text.inner_text() and chosen_text.inner_text() != before
        slider.fill("0")
        assert "no plan is that fast" in chosen_text.inner_text()
        slider.fill("1000")
        marked_seconds = page.evaluate("() => document.getElementById('front').data.at(-1).x[0]")
        assert marked_seconds == pytest.approx(cheapest.seconds.value)
        slider.press("ArrowLeft")
        assert slider.get_attribute("aria-valuetext") in chosen_text.inner_text()


def test_zoom_is_reset_and_the_picture_saved_by_buttons_below_it(browser, pages):
    with browser.page(pages["curve"]) as page:
        assert page.locator(".modebar").count() == 0
        read_range = "() => document.getElementById('front').layout.xaxis.range"
        full = page.evaluate(read_range)
        page.evaluate("() => Plotly.relayout('front', {'xaxis.range': [0, 0.1]})")
        page.locator("button[data-reset='front']").click()
        page.wait_for_function(f"""() => Math.abs(({read_range})()[0] - {full[0]}) < 1e-6""")
        with page.expect_download() as saved:
            page.locator("button[data-save='front']").click()
        assert saved.value.suggested_filename.endswith(".png")


def test_pointing_at_a_run_shows_all_values_at_one_place(browser, pages):
    with browser.page(pages["run"]) as page:
        area = page.locator("#laps-panel .cartesianlayer .subplot").first.bounding_box()
        evaluated = 0.7  # of the width: the lap at 400 examples, one of two that were evaluated
        page.mouse.move(area["x"] + evaluated * area["width"], area["y"] + area["height"] / 2)
        page.wait_for_selector("#laps-panel .hoverlayer .legend")
        shown = page.locator("#laps-panel .hoverlayer").text_content()
        for name in (
            "loss, training",
            "metric, validation",
            "examples/s",
            "compute",
            "exchange",
            "data",
            "noise scale",
        ):
            assert name in shown
        assert "ms" in shown


def test_table_is_saved_as_csv(browser, pages):
    with browser.page(pages["index"]) as page:
        page.locator("#experiments-find").fill("one")
        with page.expect_download() as saved:
            page.locator("button[data-csv='experiments']").click()
        header, row = Path(saved.value.path()).read_text().splitlines()
        assert header == ",".join(f'"{name}"' if "," in name else name for name in INDEX_COLUMNS)
        cells = dict(zip(INDEX_COLUMNS, row.split(","), strict=True))
        assert (cells["experiment"], cells["training time"]) == ("one", "0.25")  # numbers in full, without a unit
    with browser.page(pages["curve"]) as page:
        page.locator(".panel#curves + .below summary", has_text="show the numbers").click()
        with page.expect_download() as saved:
            page.locator("button[data-csv='plans']").click()
        assert saved.value.suggested_filename.endswith(".csv")


def test_page_of_an_empty_index_is_small_and_says_what_to_do(browser, tmp_path):
    path = build_index(tmp_path, tmp_path / "index.html")
    assert path.stat().st_size < 150_000
    with browser.page(path, "phone") as page:
        assert "equipoise train" in page.locator("main").inner_text()
        assert find_accessibility_violations(page) == [] and find_overflowing_elements(page) == []


def test_hovered_point_shows_its_label(browser, pages):
    with browser.page(pages["curve"]) as page:
        page.locator("#front").scroll_into_view_if_needed()
        box = page.locator("#front .scatterlayer .trace").nth(1).locator(".points path").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_selector("#front .hoverlayer .hovertext")
        assert "worker" in page.locator("#front .hoverlayer").text_content()


def test_index_is_sorted_searched_and_compared(browser, pages):
    with browser.page(pages["index"]) as page:
        rows = page.locator("#experiments tbody tr")
        assert rows.count() == 4
        header = page.locator("#experiments th", has_text="training time")
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == "ascending"
        header.locator("button").click()
        assert header.get_attribute("aria-sort") == "descending"
        page.locator("#experiments-find").fill("swept")
        assert page.locator("#experiments tbody tr:visible").count() == 1
        page.locator("#experiments-find").fill("")
        for name in ("one", "two"):
            page.locator(f".pick[value='{name}']").check()
        assert {name for name, _ in read_panel_traces(page, "compared")} == {"one", "two"}
        assert page.locator(".pick[value='swept']").is_disabled()
        page.locator(".pick[value='two']").uncheck()
        assert "Check two" in page.locator("#comparison").inner_text()
        page.locator(".pick[value='swept']").check()
        assert page.locator("#comparison .differs").count() >= 2 and not page.locator("#compared").count()
        assert "not comparable" in page.locator("#comparison").inner_text()
        assert page.locator("#comparison p").first.inner_text().startswith("Comparable: workload, workers x batch")
        first = page.locator("#comparison table").first.locator("tbody td").all_inner_texts()
        assert "-" not in first  # what both have comes first, the rest behind a click
        page.locator("#comparison summary").click()
        assert "-" in page.locator("#comparison table").last.inner_text()
        assert "half: " in page.locator("main").inner_text()
        page.locator("a", has_text="swept").first.click()
        page.wait_for_selector("body[data-drawn]")
        assert "Trade-off: swept" in page.title()


@pytest.mark.parametrize("kind", PAGE_KINDS)
@pytest.mark.parametrize(("width", "scheme"), [("desk", "light"), ("phone", "dark")])
def test_page_fits_its_window_and_is_accessible(browser, pages, kind, width, scheme):
    with browser.page(pages[kind], width, color_scheme=scheme) as page:
        assert find_overflowing_elements(page) == []
        for panel in page.locator(".panel").all():
            assert panel.locator("svg").count() and panel.bounding_box()["width"] > 250
        assert find_accessibility_violations(page) == []
        assert page.locator("th, td").count() and find_clipped_cells(page) == []


def test_index_shows_all_counts_on_a_phone_without_scrolling_sideways(browser, pages):
    with browser.page(pages["index"], "phone") as page:
        sizes = page.evaluate(
            "() => { const area = document.getElementById('experiments').closest('.scroll');"
            " return [area.scrollWidth, area.clientWidth]; }"
        )
        assert sizes[0] <= sizes[1]
        labels = page.evaluate(
            "() => [...document.querySelector('#experiments tbody tr').cells]"
            ".map((cell) => getComputedStyle(cell, '::before').content)"
        )
        assert labels[1:] == [f'"{column}"' for column in INDEX_COLUMNS]
        page.locator("#experiments-find").fill("swept")
        assert page.locator("#experiments tbody tr:visible").count() == 1
        page.locator("#experiments th", has_text="training time").locator("button").click()
        assert page.locator("#experiments th", has_text="training time").get_attribute("aria-sort") == "ascending"


def test_page_of_two_thousand_trials_is_small_and_opens(browser, tmp_path):
    folder = write_sweep_folder(tmp_path / "large", seeds=167)  # 12 settings
    (path, _) = write_pages(load_experiment(folder))
    assert path.stat().st_size < 8e6
    with browser.page(path) as page:
        assert ["trials", 4 * 167] in read_panel_traces(page, "curves")
