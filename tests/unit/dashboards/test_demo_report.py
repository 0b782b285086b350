"""The report of a demo shows what its records hold."""

import json
from dataclasses import replace

import pytest

from dashboards.demo_report import (
    DemoRecords,
    accuracy_figure,
    build_demo_page,
    describe_plan,
    describe_recovery,
    describe_verdict,
    format_recovered,
    is_demo_folder,
    read_demo_records,
    summarize_demo,
)
from dashboards.demo_story import DemoStory, PhaseAnswers
from dashboards.page import render_html
from dashboards.theme import BLUE, GREEN, ORANGE
from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.manifest import EngineEntry
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.planning.confirmation import ConfirmationResult, PredictionCheck
from equipoise.planning.document import PlanDocument, PlanEntry, StepPrediction
from equipoise.planning.interval import IntervalEstimate
from equipoise.storage.atomic import write_json
from tests.support.manifests import build_manifest

REQUESTS_AND_CORRECT = {"clean": (400, 388), "drift": (400, 148), "adapted": (400, 372), "again": (400, 390)}
PLAN = PlanEntry(
    nodes=1,
    workers=2,
    batch=24,
    global_batch=48,
    lr=0.137,
    seconds=IntervalEstimate(value=4.51, low=3.52, high=5.53),
    worker_seconds=9.02,
    step=StepPrediction(seconds=0.0015, compute=0.001, exchange=0.0005),
    examples=1000.0,
    measured=True,
    binding="compute",
    why="computing takes most of a step",
)
CONFIRMATION = ConfirmationResult(
    nodes=1,
    workers=2,
    batch=24,
    lr=0.137,
    seed=1000,
    outcome="reached target",
    seconds=4.74,
    predicted=PLAN.seconds,
    inside=True,
    examples=PredictionCheck(value=900.0, predicted=1000.0, ratio=0.9),
    step=PredictionCheck(value=0.0027, predicted=0.0015, ratio=1.8),
)
DOCUMENT = PlanDocument(plan=PLAN, front=(), warnings=(), status="confirmed", confirmations=(CONFIRMATION,))
RECORDS = {
    "sweep/plan.json": DOCUMENT.to_json(),
    "bundles/vending/bundle.json": build_manifest(
        metrics=Evaluation(0.978, {}, 0.05, 0.02, 1.25),
        engine=EngineEntry(name="onnxruntime", why="", table=[]),
        seen=5760,
    ).to_json(),
    "drift/verdict.json": {
        "state": "drift",
        "cause": "colour temperature",
        "why": "colour temperature 4010 K",
        "since": {"at": "2026-01-01T00:00:00+00:00", "images_ago": 397},
        "images": 811,
    },
    "story.json": {
        "demo": 1,
        "chapters": [{"title": name, "seconds": 51.0 + index} for index, name in enumerate("abcde")],
        "sent": {
            name: {"requests": requests, "right": correct, "accuracy": correct / requests, "unanswered": 0}
            for name, (requests, correct) in REQUESTS_AND_CORRECT.items()
        },
        "swap": {"requests": 1234, "unanswered": 0},
        "labels": 100,
        "regained": (372 - 148) / (388 - 148),
        "seconds": 301.0,
    },
}


def require_numbers(records: DemoRecords) -> None:
    """Assert that accuracies and sums follow from the recorded counts."""
    story = records.story
    for answers in story.sent.values():
        assert answers.accuracy == answers.right / answers.requests
    clean, drift, adapted = (story.sent[name].accuracy for name in ("clean", "drift", "adapted"))
    assert story.regained == pytest.approx((adapted - drift) / (clean - drift))
    assert sum(chapter.seconds for chapter in story.chapters) <= story.seconds


@pytest.fixture
def demo_folder(tmp_path):
    for name, contents in RECORDS.items():
        write_json(tmp_path / name, contents)
    return tmp_path


def test_summary_lines_match_the_records(demo_folder):
    records = read_demo_records(demo_folder)
    require_numbers(records)
    assert summarize_demo(records) == {
        "plan": "2 workers x 24 at a learning rate of 0.137: predicted 4.51 s to the target (3.52 s to 5.53 s)."
        " Confirmed: a training run took 4.74 s to the target, inside the predicted 3.52 s to 5.53 s.",
        "model": "test accuracy 97.8% after 5,760 examples; engine onnxruntime",
        "service": "97.0% of 400 answers correct",
        "drift": "37.0% of 400 answers correct; cause: colour temperature, for the last 397 of 811 images",
        "remedy": "100 labels, 1,234 requests in the meantime, 0 unanswered; 93.0% of 400 answers correct under the new"
        " light, 97.5% of 400 answers correct under the old light: 93.3% of the lost accuracy recovered",
    }


def test_page_shows_the_accuracy_of_each_phase(demo_folder):
    page = build_demo_page(read_demo_records(demo_folder))
    (panel,) = page.iter_panels()
    assert list(panel.figure.data[0].y) == [correct / requests for requests, correct in REQUESTS_AND_CORRECT.values()]
    html = render_html(page)
    for expected in ("test accuracy 97.8%", "1,234 requests", "sweep/curve.html", "3. c: 53 s"):
        assert expected in html
    json.dumps(summarize_demo(read_demo_records(demo_folder)))


def test_page_has_a_section_for_each_chapter_and_links_to_their_pages(demo_folder):
    page = build_demo_page(read_demo_records(demo_folder))
    accuracy, *chapters = page.sections
    assert page.lead == "The demo took 5.02 min."
    assert accuracy.paragraphs == ["colour temperature 4010 K."]
    assert [chapter.title for chapter in chapters] == [
        f"{number}. {name}: {50 + number} s" for number, name in enumerate("abcde", 1)
    ]
    assert chapters[2].paragraphs == ["97.0% of 400 answers correct"]
    assert [link.href for link in page.links] == [
        *("sweep/curve.html", "sweep/scaling.html", "vending/run.html", "drift/drift.html", "experiments.html")
    ]


def test_accuracy_of_each_phase_is_a_bar_with_its_percentage(demo_folder):
    figure = accuracy_figure(read_demo_records(demo_folder).story.sent)
    (bars,) = figure.data
    assert list(bars.x) == ["original light", "new light", "adapted, new light", "adapted, old light"]
    assert list(bars.text) == ["97.0%", "37.0%", "93.0%", "97.5%"]
    assert list(bars.marker.color) == [BLUE, ORANGE, GREEN, GREEN]
    bottom, top = figure.layout.yaxis.range
    assert bottom == 0 and 1 < top < 1.2  # room for the percentage above a full bar
    assert figure.layout.yaxis.tickformat == ".0%" and not figure.layout.showlegend


def test_folder_of_a_demo_holds_its_story(demo_folder, tmp_path):
    assert is_demo_folder(demo_folder)
    assert not is_demo_folder(demo_folder / "sweep")
    (demo_folder / "story.json").write_text("{}")
    assert not is_demo_folder(demo_folder)


def test_demo_without_plan_or_learning_rate_says_so():
    assert describe_plan(None) == "no plan"
    assert describe_plan(replace(PLAN, lr=None, nodes=2)).startswith("2 workers on 2 nodes x 24: predicted 4.51 s")


@pytest.mark.parametrize(("regained", "text"), [(0.999, "99.9%"), (1.0, "all"), (1.2, "all")])
def test_recovered_accuracy_is_at_most_all_of_it(regained, text):
    assert format_recovered(replace(DemoStory.empty(), regained=regained)) == text


def test_story_is_read_as_it_was_written(tmp_path):
    answers = PhaseAnswers(requests=4, right=3, accuracy=0.75, unanswered=1)
    story = replace(DemoStory.empty(), sent=dict.fromkeys(REQUESTS_AND_CORRECT, answers), seconds=2.5, labels=7)
    story.write(tmp_path)
    assert DemoStory.read(tmp_path) == story
    assert "meantime" not in describe_recovery(story)
    assert DemoStory.empty() == DemoStory(demo=1, chapters=[], sent={}, swap=None, labels=0, regained=0.0, seconds=0.0)


def test_verdict_without_begin_names_the_cause_alone():
    assert describe_verdict(StreamVerdict(state="drift", cause="blur", images=9)) == "cause: blur"
