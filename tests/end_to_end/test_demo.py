"""The whole of `make demo` after its installation, and its summary against its records."""

import subprocess
import sys
from pathlib import Path

import pytest

from dashboards.demo_report import describe_phase_verdicts, read_demo_records, summarize_demo
from tests.support.demo_records import require_numbers
from tests.support.ray_cluster import ROOT


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "runs" / "demo"
    result = subprocess.run(
        [sys.executable, "-m", "jobs.demo", "--out", str(out)], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return out, result.stdout


def test_demo_ends_and_prints_the_summary_of_its_records(finished_demo):
    out, stdout = finished_demo
    records = read_demo_records(out)
    require_numbers(records)
    for name, line in summarize_demo(records).items():
        assert f"{name:8}{line}" in stdout
    assert str(out / "index.html") in stdout


def test_new_light_costs_accuracy_and_the_adaptation_recovers_it(finished_demo):
    out, _ = finished_demo
    records = read_demo_records(out)
    story = records.story
    assert records.verdict.cause in ("colour temperature", "reflection")
    assert story.sent["drift"].accuracy < story.sent["clean"].accuracy - 0.1
    assert story.regained > 0.5
    assert not any(answers.unanswered for answers in (*story.sent.values(), story.swap))


def test_alarms_end_with_the_swap(finished_demo):
    out, stdout = finished_demo
    story = read_demo_records(out).story
    assert {name: verdict.state for name, verdict in story.verdicts.items()} == dict.fromkeys(
        ("adapted", "again", "mixed"), "ok"
    )
    new_light, old_light, both = (verdict.conditions for verdict in story.verdicts.values())
    (learned,) = new_light.keys() - {"as published"}
    assert new_light[learned] > 0.7 and old_light["as published"] > 0.7
    assert old_light[learned] < both[learned] < new_light[learned]
    for line in describe_phase_verdicts(story).values():
        assert line in stdout


def test_every_page_exists_and_draws_itself(finished_demo, browser):
    out, _ = finished_demo
    with browser.page((out / "index.html").as_uri()) as page:
        links = page.locator("nav a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        assert page.locator("#right .bars").count() or page.locator("#right svg").count()
    assert len(links) == 5
    for link in links:
        with browser.page((out / link).as_uri()) as page:
            assert page.title()


def test_finished_demo_leaves_nothing_running(finished_demo):
    out, _ = finished_demo
    processes = [
        folder for folder in Path("/proc").iterdir() if folder.name.isdigit() and str(out) in read_command_line(folder)
    ]
    assert not processes


def read_command_line(process_folder):
    try:
        return (process_folder / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
