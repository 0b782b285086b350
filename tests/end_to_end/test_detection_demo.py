"""The second act of the demo, about a detector, and its summary against its records."""

import subprocess
import sys

import pytest

from dashboards.demo_report import describe_phase_verdicts, read_demo_records, summarize_demo
from equipoise.bundle.bundle import load_bundle
from equipoise.captures.store import CaptureStore
from equipoise.labels.captured_labels import read_captured_labels
from equipoise.labels.store import LabelStore
from jobs.demo.detection_chapters import DETECTION_CHAPTERS, LABEL_COUNT
from jobs.demo.label_staff import STAFF_NAMES
from tests.support.demo_records import require_numbers
from tests.support.ray_cluster import ROOT

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "runs" / "demo"
    command = [sys.executable, "-m", "jobs.demo", "--act", "detection", "--out", str(out)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return out, result.stdout


def test_act_ends_and_prints_the_summary_of_its_records(finished_demo):
    out, stdout = finished_demo
    records = read_demo_records(out)
    require_numbers(records)
    assert [chapter.title for chapter in records.story.chapters] == [*DETECTION_CHAPTERS]
    for name, line in summarize_demo(records).items():
        assert f"{name:8}{line}" in stdout
    assert str(out / "index.html") in stdout


def test_detector_is_well_trained_and_the_light_costs_precision(finished_demo):
    records = read_demo_records(finished_demo[0])
    sent = records.story.sent
    assert records.bundle.detection.average_precision_50 >= 0.95
    assert records.verdict.cause in ("colour temperature", "reflection")
    assert sent["drift"].average_precision < sent["clean"].average_precision - 0.05


def test_boxes_were_drawn_by_both_on_the_page_in_pictures_since_the_alarm(finished_demo):
    out, _ = finished_demo
    story = read_demo_records(out).story
    assert story.labels == LABEL_COUNT == sum(story.boxes.by_author.values())
    entries = read_captured_labels(CaptureStore(str(out / "kept")), out / "labels", "boxes")
    assert len(entries) == LABEL_COUNT == len(LabelStore(out / "labels").list_labelled())
    assert {entry.metadata.pool for entry in entries} == {"drift"}
    assert {entry.labels.author for entry in entries} == {*STAFF_NAMES}
    assert sum(len(entry.labels.boxes) for entry in entries) == story.boxes.boxes


def test_adaptation_brings_back_half_of_the_lost_precision_and_keeps_the_rest(finished_demo):
    out, _ = finished_demo
    story = read_demo_records(out).story
    assert story.regained >= 0.5
    assert story.sent["again"].average_precision > story.sent["clean"].average_precision - 0.05
    assert not any(answers.unanswered for answers in (*story.sent.values(), story.swap))
    adapted = load_bundle(out / "bundles" / "adapted")
    assert "labelled" in (out / "logs" / "adapt.log").read_text()
    assert [entry.real_share for entry in adapted.manifest.conditions] and len(adapted.manifest.conditions) == 1


def test_alarms_end_with_the_swap(finished_demo):
    out, stdout = finished_demo
    story = read_demo_records(out).story
    states = {name: verdict.state for name, verdict in story.verdicts.items()}
    assert states == dict.fromkeys(("adapted", "again", "mixed"), "ok")
    for line in describe_phase_verdicts(story).values():
        assert line in stdout


def test_every_page_exists_and_draws_itself(finished_demo, browser):
    out, _ = finished_demo
    with browser.page((out / "index.html").as_uri()) as page:
        links = page.locator("nav a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
        assert page.locator("#right .bars").count() or page.locator("#right svg").count()
    assert len(links) == 3
    for link in links:
        with browser.page((out / link).as_uri()) as page:
            assert page.title()
