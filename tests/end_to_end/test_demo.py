"""make demo, but for its installation: the whole story, and whether what it tells stands in its records."""

import subprocess
import sys
from pathlib import Path

import pytest

from dashboards.demo_report import read_demo_records, summarize_demo
from equipoise.storage.atomic import read_json
from tests.support.ray_cluster import ROOT
from tests.unit.dashboards.test_demo_report import require_numbers


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "runs" / "demo"
    done = subprocess.run(
        [sys.executable, "-m", "jobs.demo", "--out", str(out)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return out, done.stdout


def test_it_comes_to_its_end_and_says_only_what_its_records_hold(told):
    out, said = told
    found = read_demo_records(out)
    require_numbers(found)
    for name, line in summarize_demo(found).items():
        assert f"{name:8}{line}" in said
    assert str(out / "index.html") in said


def test_the_light_cost_accuracy_and_it_came_back(told):
    sent, found = read_json(told[0] / "story.json")["sent"], read_demo_records(told[0])
    assert found.verdict["cause"] in ("colour temperature", "reflection")
    assert sent["drift"]["accuracy"] < sent["clean"]["accuracy"] - 0.1
    assert found.story["regained"] > 0.5
    assert not any(one["unanswered"] for one in sent.values())


def test_every_page_is_there_and_draws_itself(told, browser):
    out, _ = told
    with browser.page((out / "index.html").as_uri()) as page:
        links = page.locator("nav a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        assert page.locator("#right .bars").count() or page.locator("#right svg").count()
    assert len(links) == 5
    for link in links:
        with browser.page((out / link).as_uri()) as page:
            assert page.title()


def test_nothing_is_left_running(told):
    out, _ = told
    mine = [pid for pid in Path("/proc").iterdir() if pid.name.isdigit() and str(out) in command(pid)]
    assert not mine


def command(pid):
    try:
        return (pid / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
