"""Fixtures that open pages in Debian's chromium and fail on its errors, and functions that inspect such pages."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Request, sync_playwright

from tests.support.ray_cluster import ROOT

AXE = ROOT / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = {"desk": (1440, 900), "phone": (390, 844)}
TIMEOUT_SECONDS = 20


@dataclass
class Browser:
    """A running browser, and the errors that its pages caused."""

    engine: Any
    errors: list[str] = field(default_factory=list)
    """errors and warnings of the console, of scripts and of requests"""

    @contextmanager
    def page(self, url: str | Path, width: str = "desk", **options: Any):
        """Open a page, wait until it has drawn itself, and close it at the end of the block."""
        pixels_wide, pixels_high = WIDTHS[width]
        page = self.engine.new_page(viewport={"width": pixels_wide, "height": pixels_high}, **options)
        page.set_default_timeout(TIMEOUT_SECONDS * 1000)
        page.on("console", lambda entry: self.errors.append(entry.text) if entry.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        aborted_polls: list[tuple[str, str]] = []  # page that asked for news, and the error
        page.on("requestfailed", lambda request: self.note_failed_request(page.url, request, aborted_polls))
        try:
            page.goto(url.absolute().as_uri() if isinstance(url, Path) else url)
            page.wait_for_selector("body[data-drawn]")
            yield page
            pulse = page.locator("#pulse")
            if pulse.count() and "not connected" in pulse.inner_text():
                self.errors.append(pulse.inner_text())
            self.errors += [error for asking_url, error in aborted_polls if asking_url == page.url]
        finally:
            page.close()  # a page left open would add errors to the tests that follow

    def note_failed_request(self, page_url: str, request: Request, aborted_polls: list[tuple[str, str]]) -> None:
        """Note a request that failed; an aborted poll for news is an error unless its page was left meanwhile."""
        error = f"could not be fetched: {request.url[:80]} ({request.failure})"
        if request.failure == "net::ERR_ABORTED" and request.url.endswith("/live"):
            aborted_polls.append((page_url, error))
        else:
            self.errors.append(error)


@pytest.fixture(scope="module")  # while it runs, no other event loop can run in this thread
def engine():
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with sync_playwright() as driver:
        engine = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield engine
        engine.close()


@pytest.fixture
def browser(engine):
    """A browser that must have caused no error by the end of the test."""
    browser = Browser(engine)
    yield browser
    assert browser.errors == [], browser.errors  # pytest shows no values of a module that is not a test


@contextmanager
def open_camera_context(browser: Browser, **options: Any):
    """Open a context of a browser of its own whose camera films a test picture that moves; close both at the end."""
    flags = ("--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with (
        browser.engine.browser_type.launch(executable_path=shutil.which("chromium"), args=flags) as engine,
        engine.new_context(permissions=["camera"], **options) as context,
    ):
        yield context


def read_panel_traces(page: Page, panel: str) -> list[Any]:
    """Return name and number of points of each trace of a panel, as the browser has drawn them."""
    script = """name => document.getElementById(name)._fullData.map(trace => [trace.name, trace.x.length])"""
    traces: list[Any] = page.evaluate(script, panel)
    return traces


def find_overflowing_elements(page: Page) -> list[str]:
    """Return the HTML of the elements that reach beyond the right edge of the window."""
    script = """() => [...document.querySelectorAll("body *")]
        .filter(element => !element.closest(".scroll, svg") && element.getBoundingClientRect().right > innerWidth + 1)
        .map(element => element.outerHTML.slice(0, 120))"""
    elements: list[str] = page.evaluate(script)
    return elements


def find_clipped_cells(page: Page) -> list[str]:
    """Return the texts of table cells that are wider than their cell, or cut at the edge of what does not scroll."""
    script = """() => {
        for (const details of document.querySelectorAll("details")) details.open = true;
        const isCut = (cell) => {
            const area = cell.closest(".scroll"), right = cell.getBoundingClientRect().right;
            const scrolls = getComputedStyle(area).overflowX === "auto" && area.scrollWidth > area.clientWidth;
            return cell.scrollWidth > cell.clientWidth || (!scrolls && right > area.getBoundingClientRect().right + 1);
        };
        return [...document.querySelectorAll("th, td")].filter(isCut).map((cell) => cell.textContent);
    }"""
    texts: list[str] = page.evaluate(script)
    return texts


def find_accessibility_violations(page: Page) -> list[str]:
    """Return the violations that axe-core rates as serious or critical, with the HTML of three elements each."""
    if not AXE.exists():
        pytest.skip("no axe-core here: make .venv/browser/ready")
    page.add_script_tag(content=AXE.read_text())
    report = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {json.dumps([node['html'][:160] for node in violation['nodes'][:3]])}"
        for violation in report["violations"]
        if violation["impact"] in ("serious", "critical")
    ]
