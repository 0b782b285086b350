"""Forms and jobs of the site in a real browser: on a desk and a phone, by keyboard, and as axe sees them."""

import re
import time

import pytest
from playwright.sync_api import expect

from services.site.jobs_on_ray.command_topics import LAYOUTS
from services.site.jobs_on_ray.job_store import JobStore, SubmittedJob
from tests.support.chromium import browser as browser
from tests.support.chromium import engine as engine
from tests.support.chromium import find_accessibility_violations, find_overflowing_elements
from tests.support.site import serve_site

KEYS = ["run key-of-run Ada", "view key-of-view Bob"]
LOG = "step  10\nerror: cannot read <b>data</b>: it is not a folder; give another [path-kind]\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    results = tmp_path_factory.mktemp("forms") / "results"
    with serve_site(results, KEYS) as client:
        store = JobStore(results / ".site" / "jobs.sqlite")
        out = str(results / "first")
        job = SubmittedJob(
            id="train-first-1", command="train", arguments=("--out", out, "--workload", "digits"), out=out,
            folder=str(results), started_by="Ada", submitted=time.time(),
        )  # fmt: skip
        store.claim_job(job, "first")
        store.set_status(job, "failed", time.time(), 2)
        (results / ".site" / "logs" / "train-first-1.log").write_text(LOG)
        yield client


def log_in(page, site, key="key-of-run"):
    page.goto(f"{site.url}login")
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    page.wait_for_url(site.url)


@pytest.mark.parametrize("width", ["desk", "phone"])
def test_every_page_is_accessible_and_fits(browser, site, width):
    with browser.page(f"{site.url}login", width, bypass_csp=True) as page:
        log_in(page, site)
        for path in ("", "new", *(f"new/{command}" for command in LAYOUTS), "jobs", "jobs/train-first-1"):
            page.goto(f"{site.url}{path}")
            page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true })")
            assert find_overflowing_elements(page) == [], path
            assert find_accessibility_violations(page) == [], path


def test_a_form_shows_its_command_and_its_mistakes_as_one_types(browser, site):
    with browser.page(f"{site.url}login") as page:
        log_in(page, site)
        page.goto(f"{site.url}new/train?workload=digits&batch-size=64")
        expect(page.locator("#command-line")).to_have_text(
            re.compile("equipoise train --out .*train-1 --workload digits --batch-size 64$")
        )
        page.locator("#f-lr").focus()
        page.keyboard.type("fast")
        expect(page.locator("#problem")).to_have_text("--lr must be a number, got 'fast'")
        page.locator("#f-lr").fill("0.5")
        expect(page.locator("#problem")).to_have_count(0)
        page.get_by_text("Memory, precision and speed").click()
        page.get_by_label("compile").check()
        expect(page.locator("#command-line")).to_have_text(re.compile("--lr 0.5 --compile$"))


def test_a_form_that_is_posted_with_a_mistake_keeps_what_was_filled_in(site):
    site.log_in("key-of-run")
    token = site.csrf_token("/new/train")
    reply, html = site.submit("/new/train", {"workload": "digits", "out": "a", "batch-size": "<0>"}, token)
    assert reply.status == 400 and "--batch-size must be a whole number, got &#39;&lt;0&gt;&#39;" in html
    assert 'value="&lt;0&gt;"' in html and "<0>" not in html
    reply, html = site.submit("/new/train", {"workload": "digits", "out": "a"}, token)
    assert reply.status == 503 and "this site runs without Ray" in html
    site.cookie = ""


def test_a_viewer_sees_forms_and_jobs_but_starts_and_stops_none(browser, site):
    with browser.page(f"{site.url}login") as page:
        log_in(page, site, "key-of-view")
        page.goto(f"{site.url}new/train")
        assert page.get_by_role("button", name="start").count() == 0
        assert "needs a key of the role run" in page.locator(".start").inner_text()
        page.goto(f"{site.url}jobs/train-first-1")
        assert page.get_by_role("button", name="resume").count() == 0
    site.log_in("key-of-view")
    token = site.csrf_token("/jobs/train-first-1")
    for path in ("/new/train", "/new/train/preview", "/jobs/train-first-1/stop", "/jobs/train-first-1/resume"):
        reply, html = site.submit(path, {}, token)
        assert reply.status == 403 and "needs the role run" in html, path
    site.cookie = ""


def test_a_failed_job_shows_its_sentence_and_its_log_as_text(browser, site):
    with browser.page(f"{site.url}login") as page:
        log_in(page, site)
        assert "cannot read <b>data</b>" in page.locator("#now").inner_text()
        page.goto(f"{site.url}jobs")
        page.get_by_role("link", name="train first").click()
        assert page.locator("#failure").inner_text() == ("cannot read <b>data</b>: it is not a folder; give another")
        assert page.locator("#log").inner_text() == LOG.rstrip()
        assert page.get_by_role("button", name="resume").is_visible()


def test_a_page_weighs_little(site):
    site.log_in("key-of-run")
    pages = {path: site.page(path)[1] for path in ("/", "/new/train", "/jobs/train-first-1")}
    shared = sum(
        len(site.request("GET", f"/assets/{name}")[1]) for name in ("page.css", "site/site.css", "site/htmx.min.js")
    )
    assert max(len(html.encode()) for html in pages.values()) + shared < 150_000
    assert "key-of-run" not in "".join(pages.values())
    site.cookie = ""
