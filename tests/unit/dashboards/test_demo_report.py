"""The report of a demo shows what its records hold."""

import json
from dataclasses import replace

import pytest

from dashboards.demo_report import (
    DemoRecords,
    accuracy_figure,
    build_demo_page,
    describe_phase_verdicts,
    describe_plan,
    describe_recovery,
    describe_state,
    describe_verdict,
    format_recovered,
    is_demo_folder,
    read_demo_records,
    summarize_demo,
)
from dashboards.demo_story import DemoStory, PhaseAnswers, PhaseVerdict
from dashboards.page import NumberCell, Table, render_html
from dashboards.theme import BLUE, GREEN, ORANGE
from equipoise.bundle.engine_results import EngineEntry
from equipoise.bundle.evaluation import Evaluation
from equipoise.bundle.kinds.boxes_input import BoxesInput
from equipoise.bundle.kinds.detection import DetectionEvaluation
from equipoise.bundle.tensor_spec import TensorSpec
from equipoise.drift.diagnosis.verdict import StreamVerdict
from equipoise.planning.confirmation import ConfirmationResult, PredictionCheck
from equipoise.planning.document import PlanDocument, PlanEntry, StepPrediction
from equipoise.planning.interval import IntervalEstimate
from equipoise.storage.atomic import write_json
from tests.support.manifests import IMAGE_INPUT, build_manifest

REQUESTS_AND_CORRECT = {
    "clean": (400, 388),
    "drift": (400, 148),
    "adapted": (400, 372),
    "again": (400, 390),
    "mixed": (400, 381),
}
WARMER = "warmer, 4,010 K"
VERDICTS = {
    "adapted": {
        "state": "ok",
        "why": "400 images look like the reference",
        "conditions": {"as published": 0.04, WARMER: 0.96},
    },
    "again": {
        "state": "ok",
        "why": "800 images look like the reference",
        "conditions": {"as published": 0.98, WARMER: 0.02},
    },
    "mixed": {"state": "drift", "why": "blur: softer edges", "conditions": {"as published": 0.49, WARMER: 0.51}},
}
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
        "verdicts": VERDICTS,
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
    clean, drift, adapted = (story.sent[name].quality for name in ("clean", "drift", "adapted"))
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
        "plan": "2 workers x 24 at a learning rate of 0.137: predicted 4.5 s (3.5 to 5.5 s) to the target."
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
    for expected in ("Test accuracy 97.8%", "1,234 requests", "sweep/curve.html", "3. C: 53 s"):
        assert expected in html
    json.dumps(summarize_demo(read_demo_records(demo_folder)))


def test_page_has_a_section_for_each_chapter_and_links_to_their_pages(demo_folder):
    page = build_demo_page(read_demo_records(demo_folder))
    accuracy, verdicts, *chapters = page.sections
    assert verdicts.title == "Drift after the swap"
    assert page.lead == "The demo took 5.02 min."
    assert accuracy.paragraphs == ["Colour temperature 4010 K."]
    assert [chapter.title for chapter in chapters] == [
        f"{number}. {name}: {50 + number} s" for number, name in enumerate("ABCDE", 1)
    ]
    assert chapters[2].paragraphs == ["97.0% of 400 answers correct."]
    assert [link.href for link in page.links] == [
        *("sweep/curve.html", "sweep/scaling.html", "vending/run.html", "drift/drift.html", "experiments.html")
    ]


def test_verdicts_after_the_swap_are_a_table_with_the_share_of_each_condition(demo_folder):
    section = build_demo_page(read_demo_records(demo_folder)).sections[1]
    (table,) = section.parts
    assert list(table.columns) == ["phase", "requests", "verdict", "as published", WARMER]
    assert table.rows == [
        ["adapted, new light", 400, "ok", NumberCell(0.04, "4%"), NumberCell(0.96, "96%")],
        ["adapted, old light", 400, "ok", NumberCell(0.98, "98%"), NumberCell(0.02, "2%")],
        ["adapted, both lights", 400, "drift", NumberCell(0.49, "49%"), NumberCell(0.51, "51%")],
    ]
    assert section.paragraphs[1:] == ["Adapted, both lights: blur: softer edges."]  # why it is not ok


def test_demo_without_verdicts_after_the_swap_has_no_section_of_them(demo_folder):
    story = replace(read_demo_records(demo_folder).story, verdicts={})
    page = build_demo_page(replace(read_demo_records(demo_folder), story=story))
    assert "Drift after the swap" not in [section.title for section in page.sections]
    assert describe_phase_verdicts(story) == {}


def test_each_verdict_after_the_swap_is_a_line(demo_folder):
    story = read_demo_records(demo_folder).story
    assert describe_phase_verdicts(story) == {
        "adapted": f"adapted, new light: the verdict is ok; requests look like: 4% as published, 96% {WARMER}",
        "again": f"adapted, old light: the verdict is ok; requests look like: 98% as published, 2% {WARMER}",
        "mixed": "adapted, both lights: the verdict is drift (blur: softer edges);"
        f" requests look like: 49% as published, 51% {WARMER}",
    }
    assert describe_state(PhaseVerdict(state="ok", why="", conditions={})) == "ok"  # with one condition


def test_accuracy_of_each_phase_is_a_bar_with_its_percentage(demo_folder):
    figure = accuracy_figure(read_demo_records(demo_folder).story.sent)
    (bars,) = figure.data
    assert list(bars.x) == [
        *("original light", "new light", "adapted, new light", "adapted, old light", "adapted, both lights")
    ]
    assert [text.partition("<br>")[0] for text in bars.text] == ["97.0%", "37.0%", "93.0%", "97.5%", "95.2%"]
    assert bars.text[1] == "37.0%<br>32-42%"  # the 95 % Wilson interval of 148 of 400
    assert figure.layout.xaxis.title.text
    assert list(bars.marker.color) == [BLUE, ORANGE, GREEN, GREEN, GREEN]
    bottom, top = figure.layout.yaxis.range
    assert bottom == 0 and 1.2 < top < 1.3  # room for two lines above a full bar
    assert figure.layout.yaxis.tickformat == ".0%" and not figure.layout.showlegend


def test_folder_of_a_demo_holds_its_story(demo_folder, tmp_path):
    assert is_demo_folder(demo_folder)
    assert not is_demo_folder(demo_folder / "sweep")
    (demo_folder / "story.json").write_text("{}")
    assert not is_demo_folder(demo_folder)


def test_demo_without_plan_or_learning_rate_says_so():
    assert describe_plan(None) == "no plan"
    assert describe_plan(replace(PLAN, lr=None, nodes=2)).startswith("2 workers on 2 nodes x 24: predicted 4.5 s")


@pytest.mark.parametrize(("regained", "text"), [(0.999, "99.9%"), (1.0, "all"), (1.2, "all")])
def test_recovered_accuracy_is_at_most_all_of_it(regained, text):
    assert format_recovered(replace(DemoStory.empty(), regained=regained)) == text


def test_story_is_read_as_it_was_written(tmp_path):
    answers = PhaseAnswers(requests=4, right=3, accuracy=0.75, unanswered=1)
    story = replace(DemoStory.empty(), sent=dict.fromkeys(REQUESTS_AND_CORRECT, answers), seconds=2.5, labels=7)
    story.verdicts["mixed"] = PhaseVerdict(state="ok", why="few", conditions={"as published": 0.5, WARMER: 0.5})
    story.write(tmp_path)
    assert DemoStory.read(tmp_path) == story
    assert "meantime" not in describe_recovery(story)
    assert DemoStory.empty() == DemoStory(
        demo=1, chapters=[], sent={}, verdicts={}, swap=None, labels=0, regained=0.0, seconds=0.0
    )


def test_verdict_without_begin_names_the_cause_alone():
    assert describe_verdict(StreamVerdict(state="drift", cause="blur", images=9)) == "cause: blur"


PRECISIONS = {"clean": 0.71, "drift": 0.4, "adapted": 0.65, "again": 0.7, "mixed": 0.68}


@pytest.fixture
def detection_folder(tmp_path):
    """Write the records of the act about a detector, and return their folder."""
    metrics = DetectionEvaluation(
        average_precision=0.712,
        average_precision_50=0.989,
        by_class={},
        threshold=0.3,
        precision=0.98,
        recall=0.97,
    )
    sent = {
        name: answers | {"average_precision": PRECISIONS[name]}
        for name, answers in RECORDS["story.json"]["sent"].items()
    }
    boxes = {"boxes": 251, "by_author": {"Ada": 33, "Bo": 27}}
    story = RECORDS["story.json"] | {"act": "detection", "sent": sent, "boxes": boxes, "labels": 60}
    regained = (PRECISIONS["adapted"] - PRECISIONS["drift"]) / (PRECISIONS["clean"] - PRECISIONS["drift"])
    inputs = BoxesInput(image=IMAGE_INPUT, max_boxes=20)
    outputs = (*inputs.list_box_outputs(), TensorSpec(name="features", dtype="float32", shape=(-1, 5)))
    kind = {"kind": "boxes", "boxes": inputs, "image": None, "inputs": inputs.list_inputs(), "outputs": outputs}
    engine = EngineEntry(name="eager", why="", table=[])
    bundle = build_manifest(metrics=metrics, engine=engine, seen=4800, **kind)
    for name, contents in {
        "bundles/shelf/bundle.json": bundle.to_json(),
        "drift/verdict.json": RECORDS["drift/verdict.json"],
        "story.json": story | {"regained": regained},
    }.items():
        write_json(tmp_path / name, contents)
    return tmp_path


def test_act_about_a_detector_is_summarized_by_its_precision(detection_folder):
    records = read_demo_records(detection_folder)
    require_numbers(records)
    assert records.plan is None
    assert summarize_demo(records) == {
        "model": "mean average precision 0.712 (0.989 at an overlap of one half) on the test split after 4,800"
        " examples; engine eager",
        "service": "97.0% of 400 answers correct (mean average precision 0.710)",
        "drift": "37.0% of 400 answers correct (mean average precision 0.400); cause: colour temperature, for the last"
        " 397 of 811 images",
        "labels": "251 boxes drawn in 60 pictures: Ada 33 and Bo 27",
        "remedy": "60 labels, 1,234 requests in the meantime, 0 unanswered; 93.0% of 400 answers correct (mean average"
        " precision 0.650) under the new light, 97.5% of 400 answers correct (mean average precision 0.700) under the"
        " old light: 80.6% of the lost mean average precision recovered",
    }


def test_page_of_a_detector_has_its_precisions_and_links_to_what_there_is(detection_folder):
    page = build_demo_page(read_demo_records(detection_folder))
    (table,) = [part for part in page.sections[0].parts if isinstance(part, Table)]
    assert [row[1].value for row in table.rows] == [*PRECISIONS.values()]
    assert [link.href for link in page.links] == ["shelf/run.html", "drift/drift.html", "experiments.html"]
    assert "a box for each product" in render_html(page)
    assert [section.title[:2] for section in page.sections[2:]] == ["1.", "2.", "3.", "4.", "5."]
