"""A real browser: Debian's chromium, driven as people drive it, and what it complains of."""

import json
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from tests.support.ray_cluster import ROOT

AXE = ROOT / ".venv" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
WIDTHS = {"desk": (1440, 900), "phone": (390, 844)}
TIMEOUT_SECONDS = 20


@dataclass
class Browser:
    """A running browser."""

    engine: Any
    said: list[str] = field(default_factory=list)
    """errors of the console and of scripts"""

    @contextmanager
    def page(self, url: str | Path, width: str = "desk", **options: Any):
        """A page that has drawn itself."""
        across, down = WIDTHS[width]
        page = self.engine.new_page(viewport={"width": across, "height": down}, **options)
        page.set_default_timeout(TIMEOUT_SECONDS * 1000)
        page.on("console", lambda one: self.said.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("requestfailed", lambda one: self.said.append(f"could not be fetched: {one.url[:80]}"))
        page.goto(url.absolute().as_uri() if isinstance(url, Path) else url)
        page.wait_for_selector("body[data-drawn]")
        yield page
        pulse = page.locator("#pulse")
        if pulse.count() and "not connected" in pulse.inner_text():
            self.said.append(pulse.inner_text())
        page.close()


@pytest.fixture(scope="module")  # while it is there, its loop of events keeps others from running theirs
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
    """Which must not complain of anything until the test is over."""
    made = Browser(engine)
    yield made
    assert made.said == []


def read_panel_traces(page: Page, panel: str) -> list[Any]:
    """The traces of a panel, as the browser has read them: name and number of points."""
    script = """name => document.getElementById(name)._fullData.map(one => [one.name, one.x.length])"""
    found: list[Any] = page.evaluate(script, panel)
    return found


def find_overflowing_elements(page: Page) -> list[str]:
    """What is wider than the window."""
    script = """() => [...document.querySelectorAll("body *")]
        .filter(one => !one.closest(".scroll, svg") && one.getBoundingClientRect().right > innerWidth + 1)
        .map(one => one.outerHTML.slice(0, 120))"""
    found: list[str] = page.evaluate(script)
    return found


def find_accessibility_violations(page: Page) -> list[str]:
    """What axe-core finds serious or worse."""
    if not AXE.exists():
        pytest.skip("no axe-core here: make .venv/browser/ready")
    page.add_script_tag(content=AXE.read_text())
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{one['id']}: {json.dumps([node['html'][:160] for node in one['nodes'][:3]])}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
